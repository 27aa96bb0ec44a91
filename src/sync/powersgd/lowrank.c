/* PowerSGD over a step's gradients: matrices that it makes smaller travel as P and Q, all of them side by side in two
 * sums; everything else goes as it is, in a third. */
#include "base/log.h"
#include "base/memory.h"
#include "sync/powersgd/powersgd.h"
#include "sync/sync.h"

#include <stdlib.h>
#include <string.h>

struct matrix {
    struct ls_powersgd power;
    size_t first; /* of its gradient */
};

struct lowrank {
    struct matrix *matrices; /* owned */
    int n_matrices;
    struct ls_sync_values *rest; /* owned; ranges of grads that go as they are */
    int n_rest;
    float *p, *q, *plain; /* in the group's region */
    size_t n_p, n_q, n_plain;
    struct ls_work sums[3]; /* of p, plain and q; when one fails another may still be under way */
};

static bool compressed(const struct ls_sync_matrix *m, int rank, bool plain)
{
    return !plain && m->cols > 0 && ls_powersgd_pays(m->rows, m->cols, rank);
}

static size_t padded(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

/* Count everything (l->matrices NULL) or set it up. */
static enum ls_status each(struct ls_sync *s, struct lowrank *l, int rank)
{
    bool made = l->matrices != NULL;
    l->n_matrices = l->n_rest = 0;
    l->n_p = l->n_q = l->n_plain = 0;
    for (int b = 0; b < s->n_buckets; b++)
        for (int i = 0; i < s->buckets[b].n_matrices; i++) {
            const struct ls_sync_matrix *m = &s->buckets[b].matrices[i];
            if (compressed(m, rank, s->buckets[b].plain)) {
                struct ls_lowrank_shape shape = {m->rows, m->cols, m->block, rank};
                if (made) {
                    l->matrices[l->n_matrices].first = m->first;
                    LS_TRY(ls_powersgd_init(&l->matrices[l->n_matrices].power, &shape, s->o->seed,
                                            (uint64_t)l->n_matrices, l->p + l->n_p, l->q + l->n_q));
                }
                l->n_matrices++;
                l->n_p += padded(m->rows * (size_t)rank);
                l->n_q += padded(m->cols * (size_t)rank);
            } else {
                if (made)
                    l->rest[l->n_rest] = (struct ls_sync_values){.memory = s->grads + m->first, .count = m->count};
                l->n_rest++;
                l->n_plain += m->count;
            }
        }
    return LS_OK;
}

static enum ls_status take(struct ls_sync *s, size_t floats, float **memory)
{
    void *region;
    LS_TRY(ls_comm_region(s->comm, padded(floats) * sizeof(float), &region));
    *memory = region;
    return LS_OK;
}

static enum ls_status lowrank_open(struct ls_sync *s)
{
    const char *colon = strchr(s->o->compress, ':');
    int rank = colon ? (int)strtol(colon + 1, NULL, 10) : 4;
    struct lowrank *l = s->reducer_state = ls_alloc(1, sizeof *l);
    if (!l)
        return LS_FAILED;
    if (rank < 1 || rank > LS_POWERSGD_MAX_RANK)
        return ls_fail(LS_USAGE, "--compress %s: the rank goes from 1 to %d", s->o->compress, LS_POWERSGD_MAX_RANK);
    if (s->n_parts != 1)
        return ls_fail(LS_USAGE, "--compress powersgd needs as many replicas as workers: leave --replicas out");
    LS_TRY(each(s, l, rank));
    LS_TRY(take(s, l->n_p, &l->p));
    LS_TRY(take(s, l->n_q, &l->q));
    LS_TRY(take(s, l->n_plain, &l->plain));
    l->matrices = ls_alloc((size_t)l->n_matrices + 1, sizeof *l->matrices);
    l->rest = ls_alloc((size_t)l->n_rest + 1, sizeof *l->rest);
    return l->matrices && l->rest ? each(s, l, rank) : LS_FAILED;
}

static void lowrank_close(struct ls_sync *s)
{
    struct lowrank *l = s->reducer_state;
    if (!l)
        return;
    ls_comm_give_up(s->comm, l->sums, 3);
    for (int i = 0; l->matrices && i < l->n_matrices; i++)
        ls_powersgd_release(&l->matrices[i].power);
    ls_free(l->matrices);
    ls_free(l->rest);
    ls_free(l);
    s->reducer_state = NULL;
}

static struct ls_work *post(struct ls_sync *s, int number, float *data, size_t count)
{
    struct lowrank *l = s->reducer_state;
    struct ls_work *sum = &l->sums[number];
    *sum = (struct ls_work){
        .kind = LS_WORK_ALLREDUCE, .data = data, .bytes = count * sizeof(float), .step = s->step, .bucket = number};
    ls_comm_post(s->comm, sum);
    return sum;
}

static enum ls_status lowrank_sum(struct ls_sync *s)
{
    struct lowrank *l = s->reducer_state;
    for (int i = 0; i < l->n_matrices; i++)
        ls_powersgd_begin(&l->matrices[i].power, s->grads + l->matrices[i].first);
    struct ls_work *p = post(s, 0, l->p, l->n_p);
    float *at = l->plain;
    for (int i = 0; i < l->n_rest; at += l->rest[i++].count)
        memcpy(at, l->rest[i].memory, l->rest[i].count * sizeof *at);
    struct ls_work *plain = post(s, 1, l->plain, l->n_plain);
    LS_TRY(ls_sync_wait(s, p));
    for (int i = 0; i < l->n_matrices; i++)
        ls_powersgd_middle(&l->matrices[i].power, s->grads + l->matrices[i].first);
    struct ls_work *q = post(s, 2, l->q, l->n_q);
    LS_TRY(ls_sync_wait(s, plain));
    at = l->plain;
    for (int i = 0; i < l->n_rest; at += l->rest[i++].count)
        memcpy(l->rest[i].memory, at, l->rest[i].count * sizeof *at);
    LS_TRY(ls_sync_wait(s, q));
    for (int i = 0; i < l->n_matrices; i++)
        ls_powersgd_end(&l->matrices[i].power, s->grads + l->matrices[i].first);
    return LS_OK;
}

const struct ls_reducer ls_reducer_powersgd = {
    .name = "powersgd", .open = lowrank_open, .sum = lowrank_sum, .close = lowrank_close};
