/* How long a step takes on a layout, and what memory a process needs, predicted from measured costs.
 *
 * Processes that share cores slow each other down: when more compute than there are cores for, each gets its share of them. */
#ifndef LS_PARALLEL_PREDICT_H
#define LS_PARALLEL_PREDICT_H

#include "comm/comm.h"
#include "parallel/stages.h"

/* What layouts are compared by. */
struct ls_prices {
    int processes, replicas, accumulate; /* passes of a step: replicas * accumulate */
    double cores;                        /* processes that can compute at full speed at once */
    int cards;                           /* these cores are so many cards; 0: they are cores */
    struct ls_cost sum;                  /* of an allreduce over all processes: seconds, and seconds a byte */
    struct ls_cost message;              /* of a message to the next process, while all processes send one */
    struct ls_cost range;                /* of gradients to one of a group that sums them; all 0: as a message */
    double sum_work, message_work;       /* seconds of a core for each byte, in each process */
    double add, copy; /* seconds for each byte of gradients that is added to others, or kept for that */
    bool overlap;     /* sums begin while the pass runs (--sync overlap) */
    size_t limit;     /* bytes that a process may take; 0: not known */
    double arena;     /* bytes of memory for each byte of activations; 0: 1 */
};

struct ls_prediction {
    double seconds; /* of a step */
    double work;    /* that the busiest process computes, at full speed */
    double waits;   /* of the seconds, where every process has the whole model: for which it waits for others */
    size_t sent;    /* bytes that a process sends in a step, about */
    size_t bytes;   /* memory of the process that needs most */
    int cuts[LS_MOST_STAGES];
};

/* Every process has the whole model. */
void ls_predict_data(const struct ls_layers *l, const struct ls_prices *p, struct ls_prediction *out);
/* The rows of large dense layers are divided among the processes of groups of `width`. False: there is no such layer, or the
 * groups are too large. */
bool ls_predict_dense(const struct ls_layers *l, const struct ls_prices *p, int width, struct ls_prediction *out);
/* processes / stages pipelines. cuts[] is set. LS_USAGE if the model cannot be cut into as many stages. */
enum ls_status ls_predict_pipeline(const struct ls_layers *l, const struct ls_prices *p, int stages,
                                   struct ls_prediction *out);
/* The same, of a pipeline that is cut already. LS_FAILED: no memory. */
enum ls_status ls_predict_stages(const struct ls_layers *l, const struct ls_prices *p, int stages, const int *cuts,
                                 struct ls_prediction *out);
/* How a model is cut into stages by these prices. */
struct ls_cut_rule ls_predict_rule(const struct ls_prices *p, int stages);

#endif
