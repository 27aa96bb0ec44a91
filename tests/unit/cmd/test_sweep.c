/* What a sweep computes from metrics, and which trial successive halving takes next. tests/cli/test-sweep.sh tests whole
 * sweeps. */
#include "cmd/sweep/sweep.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* --- outcomes -------------------------------------------------------------------------------------------------------- */

static void add_step(struct ls_outcome *o, const struct ls_goals *g, int64_t step, int64_t epoch, double loss)
{
    struct ls_record r = {
        .kind = LS_RECORD_STEP, .step = step, .epoch = epoch, .samples = 10, .loss = loss, .seconds = 2};
    ls_outcome_add(o, g, &r);
}

static void add_epoch(struct ls_outcome *o, const struct ls_goals *g, enum ls_record_kind kind, int64_t epoch,
                      double loss, double top1)
{
    struct ls_record r = {.kind = kind, .epoch = epoch, .loss = loss, .top1 = top1, .top5 = 1, .seconds = 1};
    ls_outcome_add(o, g, &r);
}

/* Losses 4, 2, 3 after 10, 20 and 30 samples: two trapezoids of heights 3 and 2.5. */
static void areas_are_trapezoids(void **state)
{
    (void)state;
    struct ls_goals g = {0};
    struct ls_outcome o;
    ls_outcome_clear(&o);
    assert_true(isnan(ls_outcome_final_loss(&o)) && isnan(ls_outcome_loss_area(&o)));
    add_step(&o, &g, 1, 1, 4);
    assert_float_equal(ls_outcome_loss_area(&o), 4, 0);
    add_step(&o, &g, 2, 1, 2);
    add_step(&o, &g, 3, 2, 3);
    assert_float_equal(o.area_steps, 5.5, 1e-12);
    assert_float_equal(o.area_samples, 55, 1e-12);
    assert_float_equal(o.area_seconds, 11, 1e-12);
    assert_float_equal(ls_outcome_loss_area(&o), 55.0 / 20, 1e-12);
    assert_float_equal(ls_outcome_final_loss(&o), 3, 0); /* of the last epoch */
    add_step(&o, &g, 4, 2, NAN);
    assert_true(isnan(ls_outcome_final_loss(&o)) && isnan(ls_outcome_loss_area(&o)));
    assert_int_equal(o.steps, 4);
}

static void targets_are_reached_by_evaluations(void **state)
{
    (void)state;
    struct ls_goals g = {.has_target = true, .target = LS_GOAL_TOP1, .target_value = 0.5};
    struct ls_outcome o;
    ls_outcome_clear(&o);
    add_step(&o, &g, 1, 1, 4);
    add_epoch(&o, &g, LS_RECORD_EPOCH, 1, 4, 0.9); /* training accuracy does not count when there are evaluations */
    add_epoch(&o, &g, LS_RECORD_EVAL, 1, 4, 0.4);
    assert_true(isnan(o.target_seconds));
    add_step(&o, &g, 2, 2, 4);
    add_epoch(&o, &g, LS_RECORD_EPOCH, 2, 4, 0.9);
    add_epoch(&o, &g, LS_RECORD_EVAL, 2, 1, 0.5);
    assert_float_equal(o.target_seconds, 6, 1e-12);
    add_epoch(&o, &g, LS_RECORD_EVAL, 3, 2, 0.3);
    assert_float_equal(o.target_seconds, 6, 1e-12);
    assert_float_equal(o.best_top1, 0.5, 0);
    assert_float_equal(ls_outcome_final_loss(&o), 2, 0);

    ls_outcome_clear(&o);
    add_step(&o, &g, 1, 1, 4);
    add_epoch(&o, &g, LS_RECORD_EPOCH, 1, 4, 0.9); /* without any, it does */
    assert_float_equal(o.target_seconds, 2, 1e-12);
}

/* --- successive halving ------------------------------------------------------------------------------------------------ */

enum { TRIALS = 9 };

struct halving {
    struct ls_sweep s;
    struct ls_trial trials[TRIALS];
};

/* Rungs after epochs 1, 3 and 9 of 10. */
static void begin(struct halving *h, int n)
{
    *h = (struct halving){.s = {.trials = h->trials, .n_trials = n, .has_asha = true, .grace = 1, .factor = 3}};
    h->s.o.epochs = 10;
    assert_int_equal(ls_asha_rungs(&h->s), LS_OK);
    assert_int_equal(h->s.goals.n_rungs, 3);
    for (int i = 0; i < n; i++) {
        h->trials[i].number = i + 1;
        h->trials[i].is_waiting = true;
        ls_outcome_clear(&h->trials[i].outcome);
    }
}

/* Starts the trial that is next, which must be that one, and trains it to its epoch. */
static void train(struct halving *h, int number, int64_t until, double loss)
{
    struct ls_trial *t = ls_sweep_next(&h->s);
    assert_non_null(t);
    assert_int_equal(t->number, number);
    assert_int_equal(t->until, until);
    t->is_waiting = false;
    t->state = LS_TRIAL_PAUSED;
    t->outcome.epochs = until ? until : 10;
    for (int k = 0; k < 3; k++)
        if (t->outcome.epochs >= h->s.goals.rung_epochs[k] && isnan(t->outcome.rung[k]))
            t->outcome.rung[k] = loss;
    if (until == 0)
        t->state = LS_TRIAL_DONE;
}

static void one_in_three_goes_on(void **state)
{
    (void)state;
    struct halving h;
    begin(&h, TRIALS);
    train(&h, 1, 1, 0.5);
    train(&h, 2, 1, 0.6);
    train(&h, 3, 1, 0.7);
    train(&h, 1, 3, 0.4); /* the best of three */
    train(&h, 4, 1, 0.8);
    train(&h, 5, 1, 0.3); /* the best of five, but five thirds are one, and the best is */
    train(&h, 5, 3, 0.2);
    train(&h, 6, 1, 0.9); /* the best two of six have gone on */
    train(&h, 7, 1, 0.1);
    train(&h, 7, 3, 0.1);
    train(&h, 7, 9, 0.1); /* the best of the three that came to epoch 3 */
    train(&h, 8, 1, 1.0);
    train(&h, 9, 1, 1.1); /* nine thirds: 7, 5 and 1, which have gone on */
    train(&h, 7, 0, 0.1); /* no rung has three at epoch 9: the best goes on, so that one trial ends */
    assert_null(ls_sweep_next(&h.s));
}

static void ties_go_to_the_first_and_diverged_trials_count_as_the_worst(void **state)
{
    (void)state;
    struct halving h;
    begin(&h, 3);
    train(&h, 1, 1, 0.5);
    train(&h, 2, 1, 0.5);
    struct ls_trial *t = ls_sweep_next(&h.s);
    assert_int_equal(t->number, 3);
    t->is_waiting = false;
    t->state = LS_TRIAL_DIVERGED;
    train(&h, 1, 3, 0.5);
}

static void interrupted_trials_go_first(void **state)
{
    (void)state;
    struct halving h;
    begin(&h, 4);
    train(&h, 1, 1, 0.5);
    h.trials[0].is_waiting = true; /* it was promoted, and the sweep was killed */
    h.trials[0].until = 3;
    train(&h, 1, 3, 0.5);
    train(&h, 2, 1, 0.6);
}

static void few_epochs_have_no_rung(void **state)
{
    (void)state;
    struct ls_sweep s = {.grace = 2, .factor = 2, .o = {.epochs = 2}};
    assert_int_equal(ls_asha_rungs(&s), LS_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(areas_are_trapezoids),
        cmocka_unit_test(targets_are_reached_by_evaluations),
        cmocka_unit_test(one_in_three_goes_on),
        cmocka_unit_test(ties_go_to_the_first_and_diverged_trials_count_as_the_worst),
        cmocka_unit_test(interrupted_trials_go_first),
        cmocka_unit_test(few_epochs_have_no_rung),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
