/* What tests of layouts on the backend of queued.h share: the layout of a run, and ranks of runs that fail or are refused. */
#ifndef LS_TESTS_QUEUED_LAYOUTS_H
#define LS_TESTS_QUEUED_LAYOUTS_H

#include "train_story.h"
#include "comm_ranks.h"
#include "queued.h"

struct layout {
    const char *parallel;
    int ranks;
    int64_t replicas, accumulate;
};

/* The argument of the ranks below. */
struct going_wrong {
    const struct ls_options *options;
    int transfers;   /* fail_rank: after so many the card of rank 1 fails */
    const char *why; /* refused_rank: part of the reason */
};

/* A card that fails in the middle of a step ends all ranks, and leaves nothing behind. */
static inline void fail_rank(struct ls_comm *c, const struct ranks *r)
{
    const struct going_wrong *wrong = r->argument;
    struct ls_options o = *wrong->options;
    struct ls_trainer t;
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    if (ls_comm_rank(c) == 1)
        queued.transfers = wrong->transfers;
    NEED(ls_trainer_run(&t) != LS_OK);
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_FAILED);
}

static inline void refused_rank(struct ls_comm *c, const struct ranks *r)
{
    const struct going_wrong *wrong = r->argument;
    struct ls_options o = *wrong->options;
    struct ls_trainer t;
    NEED(ls_trainer_open(&t, &o, c) == LS_USAGE);
    NEED(ls_comm_rank(c) > 0 || strstr(ls_log_last(), wrong->why));
    ls_comm_close(c, LS_OK);
}

#endif
