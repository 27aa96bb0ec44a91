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
    struct ls_layers layers;
    struct ls_prices prices;
    char why[256]; /* layers are estimated, because; "": they are measured */
};

/* Measures the model in so many parts, at most as many as it can be cut into. comm NULL:
 * this process measures all of them. */
enum ls_status ls_layout_measure(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size,
                                 const char *plan, int parts, struct ls_measured *m);
void ls_measured_release(struct ls_measured *m);

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
