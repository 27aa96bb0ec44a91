/* The layout of a run: --parallel auto becomes the layout that is predicted to be fastest, and pipelines whose stages are not
 * named are cut by measured times.
 *
 * Every process measures the nodes of a part of the model, in a program of its own that is gone before the run's is made. All
 * gather the times and what sums and messages between them cost. Rank 0 decides.
 *
 *   LAYOUT-1  What is measured decides how the work is divided, never what is computed (PAR-3). */
#ifndef LS_EXEC_LAYOUT_LAYOUT_H
#define LS_EXEC_LAYOUT_LAYOUT_H

#include "exec/engine.h"
#include "parallel/predict.h"

struct ls_layout {
    char *parallel;            /* owned; the text of the layout, in place of that of the options */
    char *report;              /* owned; lines for people about the choice; NULL: there was none */
    double ms[LS_MOST_STAGES]; /* of a pass through each stage, as measured */
    int stages;                /* 0: stages are not measured */
    struct ls_candidate *list; /* owned; what auto chose from; NULL: nothing was chosen */
    int n, chosen;
};

/* All processes call it, and get the same. comm NULL: one process. plan: as ls_engine_open has it. */
enum ls_status ls_layout_settle(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size,
                                const char *plan, struct ls_layout *layout);
/* The same for a pipeline of processes that are not there: this process measures one stage after the other. */
enum ls_status ls_layout_plan(const struct ls_options *o, const struct ls_model_size *size, const char *plan,
                              struct ls_layout *layout);
void ls_layout_release(struct ls_layout *layout);

/* --- measure.c ------------------------------------------------------------------------------------------------------- */

struct ls_measured {
    struct ls_graph whole; /* the training graph */
    char *joined; /* owned; as ls_layers_join has it; NULL: the backend joins no layers, or they are not known */
    struct ls_layers layers;
    struct ls_prices prices;
    char why[256]; /* layers are estimated, because; "": they are measured */
};

/* Measures the model in so many parts, at most as many as it can be cut into. comm NULL:
 * this process measures all of them. */
enum ls_status ls_layout_measure(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size,
                                 const char *plan, int parts, struct ls_measured *m);
void ls_measured_release(struct ls_measured *m);

/* --- device.c: what else is measured where a backend only enqueues -------------------------------------------------- */

/* Processes that share a card measure one after the other, so that each has it for itself. */
struct ls_card_share {
    int turn, turns; /* of this process; of all */
    int sharing;     /* processes on its card */
    int cards;       /* of all processes together */
};
/* comm NULL: this process is alone. */
enum ls_status ls_device_share(struct ls_comm *comm, const struct ls_backend *b, struct ls_card_share *share);
/* Seconds of each node of a training program, and for each byte of gradients that is added to others, or copied. */
enum ls_status ls_device_times(struct ls_engine *e, double *seconds, double *add, double *copy);
/* Bytes that a process may take, when all have what they measure with. */
double ls_device_limit(const struct ls_backend *b, const struct ls_card_share *share);
/* What a sum over all processes and a message to the next one cost; all call it. o: the options of the run. */
enum ls_status ls_device_prices(struct ls_engine *e, struct ls_comm *comm, const struct ls_options *o, double copy,
                                struct ls_prices *p);

/* --- prices.c: for both ---------------------------------------------------------------------------------------------- */

struct ls_timing {
    double seconds, work; /* work: seconds of processors, of this process */
};
typedef enum ls_status ls_timed(struct ls_comm *comm, void *context, size_t bytes, struct ls_timing *t);
/* Times it on all processes with few bytes and with many. cost->alpha is the time of few, beta that of each further
 * byte; *work: of processors, for each byte. */
enum ls_status ls_price(struct ls_comm *comm, ls_timed *run, void *context, size_t many, struct ls_cost *cost,
                        double *work);
enum { LS_TIMED_PARTS = 64 }; /* of a sum in one process, at most */
/* Over memory of the host; of messages, twice as many bytes. */
ls_timed ls_time_sum, ls_time_messages;

/* --- choose.c -------------------------------------------------------------------------------------------------------- */

enum { LS_MOST_CANDIDATES = 24, LS_LAYOUT_TEXT = 32 };

/* A layout that auto may choose. */
struct ls_candidate {
    char text[LS_LAYOUT_TEXT];
    int stages;    /* 0: no pipeline */
    int width;     /* processes that share large dense layers; 0: none do */
    char why[160]; /* it is not possible, because; "": it is */
    struct ls_prediction p;
};

/* Lists the layouts of so many processes, data first. Returns their number. */
int ls_candidates_list(int processes, struct ls_candidate *list);
/* Predicts those that are possible. A candidate that does not fit into memory gets a reason. LS_FAILED: no memory. */
enum ls_status ls_candidates_predict(const struct ls_layers *l, const struct ls_prices *p, struct ls_candidate *list,
                                     int n);
/* The number of the fastest: data where nothing is clearly faster. Where none fits into memory, the one that takes least. */
int ls_candidates_choose(const struct ls_candidate *list, int n, const struct ls_prices *p);

#endif
