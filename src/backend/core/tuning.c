#include "backend/core/tuning.h"

#include <stdio.h>
#include <string.h>

enum ls_status ls_tuning_open(struct ls_program *p, const char *machine)
{
    struct ls_program_core *c = ls_core_of(p);
    struct ls_tune_cache *cache = &c->tune;
    *cache = (struct ls_tune_cache){.plan = c->options.plan,
                                    .plan_name = c->options.plan_name,
                                    .binding = c->options.plan_binding,
                                    .quiet = c->options.quiet};
    snprintf(cache->machine, sizeof cache->machine, "%s", machine);
    return ls_tune_cache_open(cache, c->options.cache);
}

enum ls_status ls_tuning_close(struct ls_program *p)
{
    struct ls_program_core *c = ls_core_of(p);
    return ls_tune_cache_close(&c->tune, c->options.cache, &c->choices);
}

/* The candidate that plan or cache names; best is -1 when they name none, or one that cannot be had. */
static enum ls_status recall(struct ls_tune_cache *cache, const struct ls_tuning_question *q,
                             struct ls_tuning_answer *answer)
{
    struct ls_tune_choice *known = ls_tune_cache_find(cache, q->text);
    *answer = (struct ls_tuning_answer){.best = -1};
    for (int i = 0; known && i < q->n; i++)
        if (strcmp(known->name, q->name(q->context, i)) == 0 && (!q->ready || q->ready(q->context, i))) {
            ls_tune_cache_use(cache, known);
            *answer = (struct ls_tuning_answer){.best = i, .ms = known->ms, .digest = known->digest};
            return LS_OK;
        }
    return ls_tune_cache_miss(cache, q->layer, q->text, known);
}

enum ls_status ls_tuning_ask(struct ls_program *p, const struct ls_tuning_question *q, struct ls_tuning_answer *answer)
{
    struct ls_program_core *c = ls_core_of(p);
    LS_TRY(recall(&c->tune, q, answer));
    if (answer->best >= 0)
        return LS_OK;
    if (q->measure)
        ls_tune_cache_progress(&c->tune, q->layer, q->where);
    LS_TRY(q->choose(q->context, answer));
    if (answer->best < 0)
        return LS_OK;
    return ls_tune_cache_add(&c->tune, q->text, q->name(q->context, answer->best), answer->ms, answer->digest,
                             q->measure);
}
