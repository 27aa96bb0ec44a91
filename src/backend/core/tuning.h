/* Which of several kernels a node runs: the one that the plan or the tune cache names, else the one that the backend
 * chooses, which is then remembered. */
#ifndef LS_BACKEND_CORE_TUNING_H
#define LS_BACKEND_CORE_TUNING_H

#include "backend/core/kernel_selection.h"
#include "backend/core/program.h"

/* Take plan and cache of the program's options. machine: what the times were measured on, without '|'. */
enum ls_status ls_tuning_open(struct ls_program *p, const char *machine);
/* Write what was measured to the cache, keep what was chosen as the program's choices, free the rest. */
enum ls_status ls_tuning_close(struct ls_program *p);

struct ls_tuning_answer {
    int best;        /* candidate; -1: none can run, and nothing is remembered */
    double ms;       /* 0: not measured */
    uint64_t digest; /* of its result for a fixed input; 0: none */
};

struct ls_tuning_question {
    const char *layer; /* for people */
    const char *where; /* for people: what the kernels run on */
    const char *text;  /* "conv fwd f32 src 64x256x14x14 ..." */
    int n;             /* candidates, the likely fastest first */
    bool measure;      /* choose measures, and the cache gets the answer */
    void *context;
    const char *(*name)(void *context, int candidate); /* valid until the next call */
    /* Make the remembered candidate ready to run; false: it cannot run here. NULL: every candidate is ready. */
    bool (*ready)(void *context, int candidate);
    enum ls_status (*choose)(void *context, struct ls_tuning_answer *answer);
};

enum ls_status ls_tuning_ask(struct ls_program *p, const struct ls_tuning_question *q, struct ls_tuning_answer *answer);

#endif
