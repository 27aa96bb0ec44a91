/* A pipeline: each process has a stage of the model (parallel/stages.h), and the passes of a step go through all stages.
 *
 * A stage runs one pass forward, then one backward, in turn. It begins min(S - s, M) passes before its first backward one, with
 * S stages, of which this is number s, and M passes a step: the schedule 1F1B. A lane holds a pass that is under way: memory
 * for its activations, a program bound to it, and buffers for what travels. Lanes share parameters and gradients.
 *
 *   PIPE-1  Passes go backward in the order of replicas.order, so that gradients are added as in one process (EXEC-1, EXEC-2).
 *   PIPE-2  Statistics of BN are made forward. A lane keeps those of its pass until the pass goes backward.
 *   PIPE-3  Only the first stage reads samples. The number of samples and the labels travel with a pass.
 *   PIPE-4  Where run only enqueues, a tensor that is sent is fetched to a host buffer, and its message is posted when it has
 *           arrived there. The host waits for that when it needs a message that is not there yet, or has enqueued another part
 *           of a pass since. So the queue has work while the host waits, and no stage waits for a message that is not posted.
 *   PIPE-5  A buffer that a receive was enqueued from is posted anew only when the queue is known to be past that copy. */
#ifndef LS_EXEC_PIPELINE_PIPELINE_H
#define LS_EXEC_PIPELINE_PIPELINE_H

#include "exec/device/device_group.h"
#include "exec/step.h"
#include "parallel/stages.h"

/* A tensor on its way, or the note of a pass. */
struct ls_transfer {
    int node, tensor; /* of the lane's graph; tensor LS_NONE: the note */
    bool send, posted;
    int peer;     /* the rank of the other stage */
    uint32_t tag; /* of pass 0 of a step; passes take turns with LS_PASS_TAGS of them */
    size_t bytes; /* whole floats */
    void *memory; /* where the tensor lies: the backend's memory; borrowed. Of a note, the host's */
    void *buffer; /* of the host; owned */
    struct ls_work work;
    /* where run only enqueues */
    void *copy[2]; /* of what is sent, by turns, in the outbox: later nodes may take its memory meanwhile; borrowed */
    uint64_t offset[2];
    int copies, turn;           /* copies 0: none */
    bool direct;                /* the message is an offset in the sender's outbox, which the receiver has mapped */
    int side;                   /* the other stage: 0: the one before, 1: the next */
    bool wired, ahead;          /* it may go by wire; its next message is received already */
    void *inbox;                /* owned; the backend's memory: what arrives by wire */
    struct ls_program *program; /* borrowed */
    int mark;                   /* of its fetch */
    int pass;                   /* that is sent next, or that the buffer is posted for next; LS_NONE: none */
    uint64_t part, at;          /* of the pipeline, when it was enqueued */
    struct ls_transfer *next;   /* sent after this one */
};

/* A stage, for people. */
struct ls_stage_about {
    char first[64];      /* the layer that it begins with */
    double share;        /* of the work, estimated */
    int64_t lanes;       /* passes under way at once */
    int64_t parameters;  /* of the model; the bytes are those of its process: */
    size_t store, arena; /* parameters and state; activations of one pass */
    size_t grads;        /* with their unfinished sums */
    size_t buffers;      /* of what travels */
    size_t travel;       /* that a pass sends from here */
};
/* Bytes of a stage, all together. */
static inline size_t ls_stage_bytes(const struct ls_stage_about *a)
{
    return a->store + (size_t)a->lanes * a->arena + a->grads + a->buffers;
}

/* What goes along with a pass. */
struct ls_pass_note {
    int64_t valid; /* samples; END: there are no more passes */
    int64_t position;
    int32_t labels[];
};

struct ls_lane {
    struct ls_net *net; /* the engine's, or own */
    struct ls_net own;
    void *arena;                   /* owned where the net is */
    float *early;                  /* owned, the backend's memory: the gradients of the pass that were made forward */
    struct ls_transfer *transfers; /* owned; in the order of nodes */
    int n_transfers, backward;     /* backward: the first node of the way back */
    struct ls_transfer note_in, note_out;
    struct ls_pass_note *note; /* owned: of the pass under way */
    int pass;                  /* under way, of those of a step */
    struct ls_run run;         /* of it */
    bool asked;                /* for its results, which are not counted yet */
    bool marked;               /* its input may not be copied yet (wires.c) */
    uint64_t asked_at;         /* ls_pipeline.at then */
};

struct ls_pipeline {
    struct ls_comm *comm; /* borrowed */
    int stages, stage;
    struct ls_sync_group mates; /* the processes that have the same stage: those of the data axis */
    int *mate_ranks;            /* owned */
    struct ls_stages cut, eval_cut;
    struct ls_graph eval_whole; /* the evaluation graph of the whole model, which never runs */
    struct ls_lane *lanes;      /* owned */
    int n_lanes;
    struct ls_lane eval;
    struct ls_slot eval_slot;     /* of the evaluation, after the first stage */
    size_t early;                 /* floats of the kept gradients, from the first, that are made forward */
    struct ls_stage_about *about; /* owned; of every rank */
    char *choices[2];             /* owned: the kernels of the whole model, for training and evaluation */
    char *joined;                 /* owned: layers that the backend computes together (parallel/stages.h) */
    int begun, done;              /* passes of the step under way: begun forward, done */
    /* where run only enqueues */
    struct ls_transfer *due, *last_due; /* fetched, with messages to be posted; in the order of the queue */
    uint64_t part;                      /* parts of passes enqueued: forward or backward */
    uint64_t at, reached;               /* copies and parts enqueued; how many of them are known to be over */
    void *outbox;                       /* owned; the backend's memory: copies of what is sent (outbox.c) */
    size_t outbox_bytes;
    void *inbox[2];                 /* mapped: the outboxes of the stage before and the next; NULL: not there */
    bool direct[2];                 /* what travels between this stage and either is read in place */
    struct ls_device_group devices; /* that wires connect */
    bool wires, by_wire;            /* they are open; what travels in the step under way goes by them */
    int steps_before;               /* whole steps that went through the host */
};

/* --- for the engine ---------------------------------------------------------------------------------------------- */

/* LS_USAGE, with the reason, where options do not go with it. Reads the mesh and the backend of the engine alone. */
enum ls_status ls_pipeline_check(const struct ls_options *o, const struct ls_engine *e);
/* Checks that the model can be cut as --parallel says, as far as that is known before it is prepared. Appends backward nodes to
 * the graph. */
enum ls_status ls_pipeline_check_cut(const struct ls_options *o, const struct ls_backend *b, struct ls_graph *g);
/* Sets e->pipeline where --parallel has one. LS_USAGE for options that do not go with it. */
enum ls_status ls_pipeline_new(struct ls_engine *e, const struct ls_options *o);
/* When the engine has its tree: the processes that have the same stage. */
enum ls_status ls_pipeline_find_mates(struct ls_engine *e);
/* Cuts a graph that is built: the net keeps this process's stage. */
enum ls_status ls_pipeline_take_stage(struct ls_engine *e, struct ls_net *net);
/* After the engine's memory is bound. prepare makes the program of another lane. */
enum ls_status ls_pipeline_open(struct ls_engine *e, const struct ls_options *o,
                                enum ls_status (*prepare)(struct ls_engine *e, const struct ls_options *o,
                                                          struct ls_net *net));
void ls_pipeline_close(struct ls_engine *e);
/* The stage of an engine; after open, or without memory (LS_ENGINE_PREDICT). */
void ls_pipeline_describe(const struct ls_engine *e, struct ls_stage_about *about);
/* All ranks call it with the seconds of their steps, and how long they waited for others in them. busy[stage] is the share of
 * the time that each stage computed, *bubble what is left of all, *least what the schedule leaves at least: (S - 1) /
 * (M + S - 1) with stages of equal work. */
enum ls_status ls_pipeline_bubble(const struct ls_engine *e, double seconds, double waited, double *busy,
                                  double *bubble, double *least);

/* --- for the stepper ---------------------------------------------------------------------------------------------- */

/* In place of ls_step_run_pass and ls_step_evaluate. */
enum ls_status ls_pipeline_pass(void *stepper, int replica, int pass, bool last);
enum ls_status ls_pipeline_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals);
/* After the first stage, in place of a loader: the next slot of an evaluation, with the labels and no images. It holds until
 * the next call; NULL: no more. */
enum ls_status ls_pipeline_next_slot(struct ls_stepper *s, const struct ls_slot **slot);

/* --- for the files of this folder ---------------------------------------------------------------------------------- */

enum { LS_NOTE_END = -1 };
enum { LS_PASS_TAGS = LS_MOST_STAGES };
/* outbox.c, when all lanes are open. wanted: memory of other processes is read in place where that is possible. */
enum ls_status ls_outbox_open(struct ls_engine *e, bool wanted);
void ls_outbox_close(struct ls_engine *e);
/* The rank of the stage before (side 0) or of the next (side 1); LS_NONE: there is none. */
int ls_pipeline_neighbour(const struct ls_engine *e, int side);
/* wires.c: with --collective nccl, when the outbox is open. */
enum ls_status ls_wires_open(struct ls_engine *e, const struct ls_options *o);
/* Before any memory is given back, and before anything waits for all enqueued work: after a failure some never ends. Again: does
 * nothing. */
void ls_wires_close(struct ls_engine *e);
/* Decides how the tensors of a step travel. */
void ls_wires_begin_step(struct ls_pipeline *p);
/* Waits for the step, if its tensors went by wire. whole: all of its passes had samples. */
enum ls_status ls_wires_end_step(struct ls_stepper *s, bool whole);
/* Of the first stage, where tensors go by wire: behind a pass of a lane, and before the next one of that lane takes a slot. */
enum ls_status ls_wires_mark_input(struct ls_engine *e, struct ls_lane *l);
enum ls_status ls_wires_await_input(struct ls_engine *e, struct ls_lane *l);
/* Sends or receives a tensor of a step that goes by wire. again: as in ls_lane_run. */
enum ls_status ls_wires_send(struct ls_engine *e, struct ls_transfer *m);
enum ls_status ls_wires_receive(struct ls_engine *e, struct ls_transfer *m, bool again);
/* transfers.c: lists what a lane sends and receives; takes buffers for that, when the outbox is open. base: the first of its
 * tags. */
enum ls_status ls_lane_open(struct ls_engine *e, struct ls_lane *l, uint32_t base);
enum ls_status ls_lane_take_buffers(struct ls_engine *e, struct ls_lane *l);
void ls_lane_close(struct ls_engine *e, struct ls_lane *l);
/* Waits for what has been fetched and posts its messages; of all parts of passes, or all but the last. */
enum ls_status ls_pipeline_post_due(struct ls_engine *e, bool all);
/* Waits until all that is enqueued is over. l: any lane. */
enum ls_status ls_pipeline_drain(struct ls_engine *e, const struct ls_lane *l);
/* The queue is past the copy number `at`: posts the buffers that are free now. */
void ls_pipeline_reach(struct ls_pipeline *p, uint64_t at);
/* Runs the nodes, and moves what travels as it comes to them. again: receives are posted anew, for the lane's next pass. */
enum ls_status ls_lane_run(struct ls_engine *e, struct ls_lane *l, int first, int end, bool again);
/* Waits for the note of the lane's pass. */
enum ls_status ls_lane_take_note(struct ls_engine *e, struct ls_lane *l, bool again);
/* Sends the lane's note to the next stage, if there is one. */
enum ls_status ls_lane_send_note(struct ls_pipeline *p, struct ls_lane *l);
/* Waits for everything that the lane has sent. */
enum ls_status ls_lane_flush(struct ls_pipeline *p, struct ls_lane *l);

#endif
