#include "cmd/report/time_shares.h"

#include <math.h>

/* Finds the rank that the others wait for, if it is one. */
static void find_culprit(struct ls_time_shares *t, double part)
{
    double most = 0, next = 0, others = 0;
    int worst = -1;
    for (int i = 0; i < t->run->n_ranks; i++) {
        double held = t->run->ranks[i].held_up;
        if (held > most) {
            next = most;
            most = held;
            worst = i;
        } else {
            next = fmax(next, held);
        }
    }
    for (int i = 0; i < t->run->n_ranks; i++)
        others += i == worst ? 0 : t->run->ranks[i].seconds;
    double all = t->late * t->seconds;
    t->culprit = worst >= 0 && all > 0 && (most - next) >= part * fmin(all, most + next) ? worst : -1;
    t->culprit_share = t->culprit >= 0 && others > 0 ? most / others : 0;
}

/* A rank that computes next to nothing while others compute only serves parameters. It waits most of the time, which limits
 * nothing. */
static bool is_server(const struct ls_run_view *v, const struct ls_rank_view *k)
{
    double most = 0;
    for (int i = 0; i < v->n_ranks; i++)
        most = fmax(most, v->ranks[i].compute);
    return k->compute < 0.01 * most;
}

static void time_of_ranks(struct ls_time_shares *t)
{
    double calls = 0, bytes = 0, communication = 0;
    for (int i = 0; i < t->run->n_ranks; i++) {
        const struct ls_rank_view *k = &t->run->ranks[i];
        if (!k->is_there || is_server(t->run, k))
            continue;
        t->ranks++;
        t->seconds += k->seconds;
        t->input += k->input;
        t->compute += k->compute;
        t->exposed += k->exposed;
        t->late += k->late;
        t->update += k->update;
        t->hidden += k->hidden;
        calls += k->calls;
        bytes += k->bytes;
        communication += k->exposed + k->hidden;
    }
    t->bytes_per_s = communication > 0 && bytes > 0 ? bytes / communication : NAN;
    t->seconds_a_call = calls > 0 ? communication / calls : NAN;
}

/* Without lines of ranks: rank 0 stands for all, and log.txt says who came last. */
static void time_of_run(struct ls_time_shares *t)
{
    const struct ls_run_totals *s = &t->run->total;
    t->ranks = t->run->processes > 1 ? (int)t->run->processes : 1;
    t->seconds = s->seconds;
    t->input = s->input;
    t->compute = s->compute;
    t->exposed = s->wait;
    t->update = s->update;
    t->bytes_per_s = t->seconds_a_call = NAN;
}

struct ls_time_shares ls_time_shares_of(const struct ls_run_view *v, double culprit_part)
{
    struct ls_time_shares t = {.run = v, .culprit = -1};
    for (int i = 0; i < v->n_ranks; i++)
        t.has_ranks |= v->ranks[i].is_there && v->ranks[i].seconds > 0;
    if (t.has_ranks)
        time_of_ranks(&t);
    else
        time_of_run(&t);
    double all = t.seconds > 0 ? t.seconds : 1;
    t.input /= all;
    t.compute /= all;
    t.exposed /= all;
    t.late /= all;
    t.update /= all;
    t.hidden /= all;
    if (t.has_ranks)
        find_culprit(&t, culprit_part);
    double steps = (double)(v->total.steps > 0 ? v->total.steps : 1);
    if (v->n_steps == 0) /* totals of epochs */
        steps = (double)(v->last_step > 0 ? v->last_step : 1);
    t.batch = v->total.samples / steps / (t.ranks > 0 ? t.ranks : 1);
    return t;
}
