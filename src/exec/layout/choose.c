/* The layouts of some processes, and which of them is fastest. */
#include "base/memory.h"
#include "exec/layout/layout.h"
#include "graph/split.h"

#include <stdio.h>
#include <string.h>

/* Predictions are not better than that: data parallel training, which has the fewest conditions, is replaced for more only.
 * Processes that share cores also wait for their turn wherever one needs another, which no prediction has: on two cores four
 * processes take 3 to 8 % more than predicted alike with data, and most where large layers are split, which all processes
 * exchange at once: 8 to 20 % more than pipelines. */
#define CLEARLY 1.05
#define CLEARLY_SHARED 1.08
#define SPLIT_SHARED 1.12

static void add(struct ls_candidate *list, int *n, struct ls_candidate c, const char *axis, int groups, int size)
{
    if (*n == LS_MOST_CANDIDATES)
        return;
    if (groups > 1)
        snprintf(c.text, sizeof c.text, "data:%d,%s:%d", groups, axis, size);
    else
        snprintf(c.text, sizeof c.text, "%s:%d", axis, size);
    list[(*n)++] = c;
}

int ls_candidates_list(int processes, struct ls_candidate *list)
{
    int n = 1;
    list[0] = (struct ls_candidate){.text = "data"};
    for (int width = processes < LS_SPLIT_CHUNKS ? processes : LS_SPLIT_CHUNKS; width > 1; width--)
        if (processes % width == 0)
            add(list, &n, (struct ls_candidate){.width = width}, "dense", processes / width, width);
    for (int stages = processes < LS_MOST_STAGES ? processes : LS_MOST_STAGES; stages > 1; stages--)
        if (processes % stages == 0)
            add(list, &n, (struct ls_candidate){.stages = stages}, "pipeline", processes / stages, stages);
    return n;
}

enum ls_status ls_candidates_predict(const struct ls_layers *l, const struct ls_prices *p, struct ls_candidate *list,
                                     int n)
{
    for (int i = 0; i < n; i++) {
        struct ls_candidate *c = &list[i];
        enum ls_status st = LS_OK;
        if (*c->why)
            continue;
        if (c->stages > 0)
            st = ls_predict_pipeline(l, p, c->stages, &c->p);
        else if (c->width > 0 && !ls_predict_dense(l, p, c->width, &c->p))
            snprintf(c->why, sizeof c->why, "no dense layer is large enough");
        else if (c->width == 0)
            ls_predict_data(l, p, &c->p);
        if (st == LS_USAGE)
            snprintf(c->why, sizeof c->why, "the model has too few places where it can be cut");
        else if (st != LS_OK)
            return st;
        if (!*c->why && p->limit > 0 && c->p.bytes > p->limit)
            snprintf(c->why, sizeof c->why, "a process needs %.0f MiB and has %.0f", (double)c->p.bytes / 1048576,
                     (double)p->limit / 1048576);
    }
    return LS_OK;
}

static bool is_data(const struct ls_candidate *c)
{
    return c->stages == 0 && c->width == 0;
}

/* The time by which layouts other than data are compared. */
static double expected(const struct ls_candidate *c, bool shared)
{
    return c->p.seconds * (shared && c->width > 0 ? SPLIT_SHARED : 1);
}

int ls_candidates_choose(const struct ls_candidate *list, int n, const struct ls_prices *p)
{
    int best = -1, least = -1;
    bool shared = p->cores > 0 && p->cores < p->processes;
    const struct ls_candidate *data = is_data(&list[0]) && !*list[0].why ? &list[0] : NULL;
    for (int i = 0; i < n; i++) {
        const struct ls_candidate *c = &list[i];
        if (c->p.bytes > 0 && (least < 0 || c->p.bytes < list[least].p.bytes))
            least = i;
        if (*c->why || (c != data && data && c->p.seconds * (shared ? CLEARLY_SHARED : CLEARLY) >= data->p.seconds))
            continue;
        if (best < 0 || &list[best] == data || expected(c, shared) < expected(&list[best], shared))
            best = i;
    }
    return best >= 0 ? best : least >= 0 ? least : 0;
}
