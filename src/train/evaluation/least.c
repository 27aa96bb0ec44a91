#include "train/evaluation/least.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

struct ls_outcome {
    int64_t sample;
    float loss;
    int32_t rank, label;
};

enum ls_status ls_least_open(struct ls_least *l, const struct ls_engine *e, int64_t count, bool keeps_logits)
{
    int rank, readers = ls_engine_readers(e, &rank);
    int64_t batch = e->size.batch, steps = (count + batch * readers - 1) / (batch * readers);
    *l = (struct ls_least){.count = count, .classes = e->size.classes, .batch = batch, .keeps_logits = keeps_logits};
    int64_t most = keeps_logits ? (steps + 1) * batch : batch;
    l->first = ls_alloc((size_t)(steps * batch), sizeof *l->first);
    l->logits = ls_alloc((size_t)(most * l->classes), sizeof *l->logits);
    l->margins = ls_alloc((size_t)count, sizeof *l->margins);
    l->chosen = ls_alloc((size_t)count, sizeof *l->chosen);
    for (int64_t i = 0; l->margins && i < count; i++)
        l->margins[i] = INFINITY;
    return l->first && l->logits && l->margins && l->chosen ? LS_OK : LS_FAILED;
}

void ls_least_release(struct ls_least *l)
{
    ls_free(l->first);
    ls_free(l->logits);
    ls_free(l->margins);
    ls_free(l->chosen);
    *l = (struct ls_least){0};
}

/* How far the highest score is above the second. What is not a number is least certain. */
static float margin_of(const float *scores, int64_t n)
{
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(scores[i]))
            return 0;
        second = scores[i] > first ? first : scores[i] > second ? scores[i] : second;
        first = scores[i] > first ? scores[i] : first;
    }
    float margin = first - second;
    return isnan(margin) ? 0 : margin;
}

enum ls_status ls_least_glance(struct ls_least *l, struct ls_stepper *s, const struct ls_slot *slot)
{
    const float *loss;
    const int32_t *rank;
    float *logits = l->logits + (l->keeps_logits ? l->n_first * l->classes : 0);
    LS_TRY(ls_step_glance(s, slot, logits, &loss, &rank));
    for (int64_t i = 0; i < slot->valid; i++) {
        int64_t sample = slot->position + i;
        l->first[l->n_first++] = (struct ls_outcome){sample, loss[i], rank[i], slot->labels[i]};
        if (slot->labels[i] >= 0)
            l->margins[sample] = margin_of(logits + i * l->classes, l->classes);
    }
    return LS_OK;
}

/* Each sample is known to one process; the others have INFINITY. */
static enum ls_status gather(struct ls_least *l, struct ls_comm *comm)
{
    int size = ls_comm_size(comm);
    float *all = ls_alloc((size_t)size * (size_t)l->count, sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(comm, l->margins, (size_t)l->count * sizeof *all, all) : LS_FAILED;
    for (int r = 0; st == LS_OK && r < size; r++)
        for (int64_t i = 0; i < l->count; i++)
            l->margins[i] = fminf(l->margins[i], all[r * l->count + i]);
    ls_free(all);
    return st;
}

/* Bits of numbers from 0 to INFINITY have the order of the numbers. */
static uint32_t bits_of(float margin)
{
    uint32_t bits;
    memcpy(&bits, &margin, sizeof bits);
    return bits;
}

static int64_t count_below(const struct ls_least *l, uint32_t bound)
{
    int64_t below = 0;
    for (int64_t i = 0; i < l->count; i++)
        below += bits_of(l->margins[i]) < bound;
    return below;
}

enum ls_status ls_least_choose(struct ls_least *l, double share, struct ls_comm *comm)
{
    if (comm)
        LS_TRY(gather(l, comm));
    int64_t wanted = (int64_t)ceil(share * (double)l->count);
    uint32_t bound = 0; /* the highest below which there are at most as many as wanted */
    for (int bit = 31; bit >= 0; bit--)
        if (count_below(l, bound | 1u << bit) <= wanted)
            bound |= 1u << bit;
    int64_t equal = wanted - count_below(l, bound);
    l->n_chosen = 0;
    for (int64_t i = 0; i < l->count; i++) {
        uint32_t bits = bits_of(l->margins[i]);
        if (bits < bound || (bits == bound && equal-- > 0))
            l->chosen[l->n_chosen++] = i;
    }
    return LS_OK;
}

static bool is_chosen(const struct ls_least *l, int64_t sample)
{
    int64_t low = 0, high = l->n_chosen;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (l->chosen[middle] < sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low < l->n_chosen && l->chosen[low] == sample;
}

void ls_least_settle(const struct ls_least *l, struct ls_totals *totals, struct ls_confusion *confusion)
{
    for (int64_t i = 0; i < l->n_first; i++) {
        const struct ls_outcome *o = &l->first[i];
        if (is_chosen(l, o->sample))
            continue;
        ls_totals_count(totals, &o->loss, &o->rank, 1);
        if (confusion && l->keeps_logits)
            ls_confusion_add_sample(confusion, l->logits + i * l->classes, o->sample, o->label);
    }
}
