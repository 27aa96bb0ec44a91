#include "train/evaluation/confusion.h"
#include "base/memory.h"
#include "base/text/utf8.h"

#include <math.h>
#include <string.h>

const char *ls_class_name(const struct ls_class_names *names, int64_t c, char *text, size_t room)
{
    if (names->names && c < names->named)
        return ls_utf8_escape(names->names[c], text, room);
    snprintf(text, room, "class %lld", (long long)c);
    return text;
}

enum ls_status ls_confusion_open(struct ls_confusion *c, const struct ls_engine *e)
{
    *c = (struct ls_confusion){.classes = e->size.classes};
    if (c->classes > LS_CONFUSION_CLASSES)
        return LS_OK;
    c->counts = ls_alloc((size_t)(c->classes * c->classes), sizeof *c->counts);
    c->logits = ls_alloc((size_t)(e->size.batch * c->classes), sizeof *c->logits);
    if (c->counts && c->logits)
        return LS_OK;
    ls_confusion_release(c);
    return LS_FAILED;
}

void ls_confusion_release(struct ls_confusion *c)
{
    ls_free(c->counts);
    ls_free(c->logits);
    *c = (struct ls_confusion){0};
}

/* NaN counts as the highest loss. */
static bool is_worse(const struct ls_mistake *a, const struct ls_mistake *b)
{
    double of_a = isnan(a->loss) ? INFINITY : a->loss, of_b = isnan(b->loss) ? INFINITY : b->loss;
    return of_a > of_b || (of_a == of_b && a->sample < b->sample);
}

static void add_mistake(struct ls_confusion *c, const struct ls_mistake *m)
{
    int at = c->n_mistakes < LS_MISTAKES ? c->n_mistakes++ : LS_MISTAKES;
    for (; at > 0 && is_worse(m, &c->mistakes[at - 1]); at--)
        if (at < LS_MISTAKES)
            c->mistakes[at] = c->mistakes[at - 1];
    if (at < LS_MISTAKES)
        c->mistakes[at] = *m;
}

static int64_t highest(const float *scores, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (scores[i] > scores[best])
            best = i;
    return best;
}

static double log_of_sum(const float *scores, int64_t n, double most)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)scores[i] - most);
    return most + log(sum);
}

void ls_confusion_add_sample(struct ls_confusion *c, const float *scores, int64_t sample, int32_t label)
{
    if (!c->counts || label < 0 || label >= c->classes)
        return;
    int64_t best = highest(scores, c->classes);
    c->counts[label * c->classes + best]++;
    if (best == label)
        return;
    double top = (double)scores[best], total = log_of_sum(scores, c->classes, top);
    add_mistake(c, &(struct ls_mistake){.sample = sample,
                                        .label = label,
                                        .predicted = (int32_t)best,
                                        .loss = total - (double)scores[label],
                                        .probability = exp(top - total)});
}

enum ls_status ls_confusion_add(struct ls_confusion *c, const struct ls_engine *e, const struct ls_slot *slot,
                                const int64_t *samples)
{
    if (!c->counts || e->eval.graph.logits == LS_NONE) /* the last stage of a pipeline has the logits */
        return LS_OK;
    LS_TRY(e->backend->read(e->eval.program, e->eval.graph.logits, c->logits));
    for (int64_t i = 0; i < slot->valid; i++) {
        int64_t at = slot->position + i;
        ls_confusion_add_sample(c, c->logits + i * c->classes, samples ? samples[at] : at, slot->labels[i]);
    }
    return LS_OK;
}

/* --- all processes -------------------------------------------------------------------------------------------------- */

static enum ls_status reduce_counts(struct ls_confusion *c, struct ls_comm *comm, int64_t *all)
{
    for (int64_t row = 0; row < c->classes; row++) {
        int64_t *mine = c->counts + row * c->classes;
        LS_TRY(ls_comm_allgather(comm, mine, (size_t)c->classes * sizeof *mine, all));
        memset(mine, 0, (size_t)c->classes * sizeof *mine);
        for (int r = 0; r < ls_comm_size(comm); r++)
            for (int64_t i = 0; i < c->classes; i++)
                mine[i] += all[r * c->classes + i];
    }
    return LS_OK;
}

static enum ls_status reduce_mistakes(struct ls_confusion *c, struct ls_comm *comm, struct ls_confusion *all)
{
    struct ls_confusion mine = *c;
    LS_TRY(ls_comm_allgather(comm, &mine, sizeof mine, all));
    c->n_mistakes = 0;
    for (int r = 0; r < ls_comm_size(comm); r++)
        for (int i = 0; i < all[r].n_mistakes; i++)
            add_mistake(c, &all[r].mistakes[i]);
    return LS_OK;
}

enum ls_status ls_confusion_reduce(struct ls_confusion *c, struct ls_comm *comm)
{
    if (!comm || ls_comm_size(comm) == 1 || c->classes > LS_CONFUSION_CLASSES)
        return LS_OK;
    size_t ranks = (size_t)ls_comm_size(comm);
    int64_t *rows = ls_alloc(ranks * (size_t)c->classes, sizeof *rows);
    struct ls_confusion *all = ls_alloc(ranks, sizeof *all);
    enum ls_status st = rows && all ? reduce_counts(c, comm, rows) : LS_FAILED;
    if (st == LS_OK)
        st = reduce_mistakes(c, comm, all);
    ls_free(rows);
    ls_free(all);
    return st;
}

/* --- results ---------------------------------------------------------------------------------------------------------- */

struct ls_class_result ls_confusion_class(const struct ls_confusion *c, int64_t class)
{
    struct ls_class_result r = {.taken_for = -1, .correct = c->counts[class * c->classes + class]};
    for (int64_t other = 0; other < c->classes; other++) {
        int64_t here = c->counts[class * c->classes + other];
        r.samples += here;
        r.predicted += c->counts[other * c->classes + class];
        if (other != class && here > 0 && (r.taken_for < 0 || here > c->counts[class * c->classes + r.taken_for]))
            r.taken_for = other;
    }
    r.recall = r.samples > 0 ? (double)r.correct / (double)r.samples : NAN;
    r.precision = r.predicted > 0 ? (double)r.correct / (double)r.predicted : NAN;
    return r;
}
