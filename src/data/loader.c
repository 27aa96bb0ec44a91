/* The caller's side of a loader. */
#include "data/loader.h"
#include "base/system/clock.h"
#include "base/log.h"

/* Threads that often wait for storage do not need a core each. A loader whose threads wait for more than WAITS_MUCH of their
 * time, until that is less than WAITS_LITTLE, may use all threads that were started (loader_new.c). */
#define WAITS_MUCH 0.5
#define WAITS_LITTLE 0.25

static enum ls_status deliver_failure(struct ls_loader *l, const struct place *p)
{
    char where[512];
    ls_dataset_where(l->o.set, p->bad_sample, where, sizeof where);
    l->failed = p->status;
    return ls_fail(p->status,
                   "%s: %s (`lockstep data` lists every broken file; --on-bad-sample skip trains without them)", where,
                   p->why);
}

/* Wakes threads for a free place, at most one per chunk: waking a thread can take as long as cropping a batch. */
static void wake(struct ls_loader *l)
{
    int64_t chunks = (l->o.batch + l->chunk - 1) / l->chunk;
    if (chunks >= l->active)
        pthread_cond_broadcast(&l->work);
    for (int64_t i = 0; i < chunks && chunks < l->active; i++)
        pthread_cond_signal(&l->work);
}

void ls_loader_set_active(struct ls_loader *l, int threads)
{
    l->active = threads < l->workers ? threads : l->workers;
    pthread_cond_broadcast(&l->more);
    pthread_cond_broadcast(&l->work);
}

int ls_loader_max_threads(struct ls_loader *l)
{
    double waiting = l->prepare_seconds > 0 ? l->read_seconds / l->prepare_seconds : 0;
    l->sleepy = waiting > (l->sleepy ? WAITS_LITTLE : WAITS_MUCH);
    return l->sleepy || l->o.max_threads == 0 || l->o.max_threads > l->workers ? l->workers : l->o.max_threads;
}

/* Updates the statistics and the tuner when a slot is taken; the lock is held. The time between two epochs does not count:
 * the caller evaluates or saves then. */
static void measure(struct ls_loader *l, const struct ls_slot *slot, double waited)
{
    double now = ls_now(), seconds = now - l->last;
    if (l->last > 0 && slot->epoch == l->last_epoch) {
        if (l->taken > (uint64_t)l->o.ring) { /* the first slots arrive while the caller warms up */
            l->used += slot->valid;
            l->use_seconds += seconds - waited;
        }
        l->tuner.max_threads = ls_loader_max_threads(l);
        if (ls_tuner_slot(&l->tuner, seconds, waited))
            ls_loader_set_active(l, l->tuner.threads);
    }
    l->last = now;
    l->last_epoch = slot->epoch;
}

enum ls_status ls_loader_next(struct ls_loader *l, const struct ls_slot **slot)
{
    double waited = 0;
    if (l->failed != LS_OK)
        return l->failed;
    pthread_mutex_lock(&l->lock);
    if (l->taken - l->released > (uint64_t)l->o.held) {
        l->released++;
        wake(l);
    }
    if (l->ended && l->taken == l->opened) {
        pthread_mutex_unlock(&l->lock);
        *slot = NULL;
        return LS_OK;
    }
    struct place *p = place_of(l, l->taken);
    if (l->taken == l->opened || p->unfilled > 0) {
        double start = ls_now();
        while (l->taken == l->opened || p->unfilled > 0)
            pthread_cond_wait(&l->filled, &l->lock);
        waited = ls_now() - start;
        l->waited += waited;
    }
    l->taken++;
    measure(l, &p->slot, waited);
    pthread_mutex_unlock(&l->lock);
    if (p->status != LS_OK)
        return deliver_failure(l, p);
    *slot = &p->slot;
    return LS_OK;
}

bool ls_loader_ready(struct ls_loader *l, int64_t slots)
{
    bool good = l->failed == LS_OK;
    double start = ls_now();
    pthread_mutex_lock(&l->lock);
    uint64_t end = l->taken + (uint64_t)slots, room = l->released + (uint64_t)l->o.ring;
    for (uint64_t i = l->taken; good && i < (end < room ? end : room); i++) {
        const struct place *p = place_of(l, i);
        while (i >= l->opened ? !l->ended : p->unfilled > 0)
            pthread_cond_wait(&l->filled, &l->lock);
        if (i >= l->opened)
            break; /* the data ends here */
        good = p->status == LS_OK;
    }
    pthread_mutex_unlock(&l->lock);
    l->waited += ls_now() - start;
    return good;
}

void *ls_loader_region(const struct ls_loader *l, size_t *bytes)
{
    *bytes = l->region_bytes;
    return l->region;
}

double ls_loader_waited(const struct ls_loader *l)
{
    return l->waited;
}

struct ls_loader_pace ls_loader_pace(struct ls_loader *l)
{
    struct ls_loader_pace pace = {.settled = l->tuner.settled && l->tuner.before == 0,
                                  .max_threads = l->tuner.max_threads};
    pthread_mutex_lock(&l->lock);
    pace.threads = l->active;
    if (l->prepare_seconds > 0) {
        pace.prepares = l->prepared / l->prepare_seconds;
        pace.reading = l->read_seconds / l->prepare_seconds;
    }
    pthread_mutex_unlock(&l->lock);
    if (l->use_seconds > 0)
        pace.uses = (double)l->used / l->use_seconds;
    return pace;
}
