/* --on-bad-sample skip: which samples could not be read, on all ranks together. */
#include "base/log.h"
#include "base/memory.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <string.h>

/* Broken samples of each rank and data set that are named together. */
#define ROUND 64

struct found {
    int64_t replaced; /* samples of training that this rank replaced since the last call */
    int64_t more;     /* the rank has more than a round */
    int64_t n[2], sample[2][ROUND];
};

static struct found take_found(struct ls_trainer *t, struct ls_dataset *const sets[2])
{
    struct found f = {.replaced = t->stepper.replaced};
    t->stepper.replaced = 0;
    for (int s = 0; s < 2; s++)
        while (sets[s] && f.n[s] < ROUND && ls_dataset_next_bad(sets[s], &f.sample[s][f.n[s]]))
            f.n[s]++;
    f.more = f.n[0] == ROUND || f.n[1] == ROUND;
    return f;
}

/* Writes the name of a broken sample to log.txt. It is read again: another rank may have found it. */
static void name(struct ls_dataset *set, int64_t sample, const char *what)
{
    struct ls_image image = {0};
    struct ls_view view = {0};
    char where[512];
    int32_t label;
    ls_dataset_where(set, sample, where, sizeof where);
    if (ls_dataset_try(set, sample, &view, &image, &label) == LS_OK)
        snprintf(image.why, sizeof image.why, "it could not be read before");
    ls_note("Broken sample, %s: %s: %s", what, where, image.why);
    ls_image_release(&image);
}

/* Rank 0 names what no rank has found before. own: this rank's samples, which are taken already. */
static void name_found(struct ls_trainer *t, struct ls_dataset *const sets[2], const struct found *f, bool own)
{
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < f->n[s]; i++)
            if ((own || ls_dataset_take_bad(sets[s], f->sample[s][i])) && t->root)
                name(sets[s], f->sample[s][i], s == 0 ? "replaced" : "left out");
}

enum ls_status ls_broken_gather(struct ls_trainer *t)
{
    struct ls_dataset *const sets[2] = {t->task.train, t->task.test};
    struct ls_comm *comm = t->engine.comm;
    int ranks = comm ? ls_comm_size(comm) : 1, rank = comm ? ls_comm_rank(comm) : 0;
    bool more = true;
    if (strcmp(t->o->on_bad_sample, "skip") != 0)
        return LS_OK;
    struct found *all = ls_alloc((size_t)ranks, sizeof *all);
    enum ls_status st = all ? LS_OK : LS_FAILED;
    while (st == LS_OK && more) {
        struct found mine = take_found(t, sets);
        more = false;
        if (comm)
            st = ls_comm_allgather(comm, &mine, sizeof mine, all);
        else
            all[0] = mine;
        for (int r = 0; r < ranks && st == LS_OK; r++) {
            t->state.done.broken += all[r].replaced;
            more = more || all[r].more;
            name_found(t, sets, &all[r], r == rank);
        }
    }
    t->state.done.counts_broken = true;
    ls_free(all);
    return st;
}

void ls_broken_say(const struct ls_trainer *t)
{
    int64_t train = ls_dataset_bad_count(t->task.train), test = t->task.test ? ls_dataset_bad_count(t->task.test) : 0;
    if (train + test > 0)
        ls_trainer_say(t,
                       "Broken samples: %" PRId64 " of training replaced, %" PRId64
                       " of evaluation left out; log.txt names them.",
                       train, test);
}
