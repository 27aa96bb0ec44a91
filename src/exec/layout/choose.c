/* The layouts of some processes, and which of them is fastest. */
#include "base/memory.h"
#include "exec/layout/layout.h"
#include "graph/split.h"

#include <stdio.h>
#include <string.h>

/* Predictions are not better than that: data parallel training, which has the fewest conditions, is replaced for more only.
 * Processes that share cores also wait for their turn wherever one needs another, many times a pass in the other layouts. No
 * prediction has that: on two cores, four processes take 3 to 12 % less with data parallel than with what is predicted alike. */
#define CLEARLY 1.05
#define CLEARLY_SHARED 1.12

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

int ls_candidates_choose(const struct ls_candidate *list, int n, const struct ls_prices *p)
{
    int best = -1, least = -1;
    double clearly = p->cores > 0 && p->cores < p->processes ? CLEARLY_SHARED : CLEARLY;
    for (int i = 0; i < n; i++) {
        const struct ls_candidate *c = &list[i];
        if (c->p.bytes > 0 && (least < 0 || c->p.bytes < list[least].p.bytes))
            least = i;
        if (!*c->why &&
            (best < 0 || c->p.seconds * (list[best].stages || list[best].width ? 1 : clearly) < list[best].p.seconds))
            best = i;
    }
    return best >= 0 ? best : least >= 0 ? least : 0;
}
