/* Which layout --parallel auto chooses, by made-up costs; and how predicted times come about. */
#include "exec/layout/layout.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 8 };
#define MIB (1 << 20)

/* Eight layers of equal work: 1 ms forward and 2 ms backward, 1 MiB of parameters, 4 MiB of activations, 1 MiB goes on. */
struct model {
    struct ls_layer list[LAYERS];
    struct ls_layers layers;
};

static void make_model(struct model *m)
{
    memset(m, 0, sizeof *m);
    m->layers = (struct ls_layers){.n = LAYERS, .list = m->list, .measured = true};
    for (int i = 0; i < LAYERS; i++)
        m->list[i] = (struct ls_layer){.name = "layer",
                                       .can_cut = i > 0,
                                       .trained = 1,
                                       .forward = 1e-3,
                                       .backward = 2e-3,
                                       .crossing = MIB,
                                       .kept = 2 * MIB,
                                       .grads = MIB,
                                       .activations = 4 * MIB};
}

/* A network on which messages cost next to nothing. */
static struct ls_prices free_prices(int processes)
{
    return (struct ls_prices){
        .processes = processes, .replicas = processes, .accumulate = 1, .cores = processes, .overlap = true};
}

static int choose(const struct model *m, const struct ls_prices *p, struct ls_candidate *list, int *n)
{
    *n = ls_candidates_list(p->processes, list);
    assert_int_equal(ls_candidates_predict(&m->layers, p, list, *n), LS_OK);
    return ls_candidates_choose(list, *n, p);
}

static const char *chosen(const struct model *m, const struct ls_prices *p)
{
    static struct ls_candidate list[LS_MOST_CANDIDATES];
    int n;
    return list[choose(m, p, list, &n)].text;
}

static void all_layouts_are_listed(void **state)
{
    (void)state;
    static const char *const twelve[] = {
        "data",        "data:2,dense:6",    "data:3,dense:4",    "data:4,dense:3",    "data:6,dense:2",
        "pipeline:12", "data:2,pipeline:6", "data:3,pipeline:4", "data:4,pipeline:3", "data:6,pipeline:2"};
    struct ls_candidate list[LS_MOST_CANDIDATES];
    assert_int_equal(ls_candidates_list(12, list), 10);
    for (int i = 0; i < 10; i++)
        assert_string_equal(list[i].text, twelve[i]);
    assert_int_equal(ls_candidates_list(1, list), 1);
    assert_string_equal(list[0].text, "data");
    assert_true(ls_candidates_list(5040, list) <= LS_MOST_CANDIDATES);
}

static void one_process_has_the_whole_model(void **state)
{
    (void)state;
    struct model m;
    make_model(&m);
    struct ls_prices p = free_prices(1);
    assert_string_equal(chosen(&m, &p), "data");
}

static void data_parallel_wins_where_sums_are_free(void **state)
{
    (void)state;
    struct model m;
    make_model(&m);
    for (int n = 2; n <= 8; n++) {
        struct ls_prices p = free_prices(n);
        assert_string_equal(chosen(&m, &p), "data");
    }
}

static void a_tie_goes_to_data(void **state)
{
    (void)state;
    struct ls_candidate list[2] = {{.text = "data", .p = {.seconds = 1.04, .bytes = 1}},
                                   {.text = "pipeline:2", .stages = 2, .p = {.seconds = 1, .bytes = 1}}};
    struct ls_prices p = free_prices(2), shared = free_prices(2);
    shared.cores = 1;
    assert_int_equal(ls_candidates_choose(list, 2, &p), 0);
    list[0].p.seconds = 1.06;
    assert_int_equal(ls_candidates_choose(list, 2, &p), 1);
    assert_int_equal(ls_candidates_choose(list, 2, &shared), 0);
    list[0].p.seconds = 1.09;
    assert_int_equal(ls_candidates_choose(list, 2, &shared), 1);
    snprintf(list[1].why, sizeof list[1].why, "refused");
    assert_int_equal(ls_candidates_choose(list, 2, &p), 0);
}

static void split_layers_on_shared_cores_must_be_clearly_faster_than_pipelines(void **state)
{
    (void)state;
    struct ls_candidate list[3] = {{.text = "data", .p = {.seconds = 2, .bytes = 1}},
                                   {.text = "dense:2", .width = 2, .p = {.seconds = 0.95, .bytes = 1}},
                                   {.text = "pipeline:2", .stages = 2, .p = {.seconds = 1, .bytes = 1}}};
    struct ls_prices own = free_prices(2), shared = free_prices(2);
    shared.cores = 1;
    assert_int_equal(ls_candidates_choose(list, 3, &own), 1);
    assert_int_equal(ls_candidates_choose(list, 3, &shared), 2);
    list[1].p.seconds = 0.85;
    assert_int_equal(ls_candidates_choose(list, 3, &shared), 1);
    /* What is not clearly faster than data does not stand in the way of what is. */
    list[0].p.seconds = 1;
    list[2].p.seconds = 0.94;
    assert_int_equal(ls_candidates_choose(list, 3, &shared), 1);
    /* Without data the others remain. */
    snprintf(list[0].why, sizeof list[0].why, "refused");
    assert_int_equal(ls_candidates_choose(list, 3, &shared), 2);
}

static void slow_sums_are_avoided(void **state)
{
    (void)state;
    struct model m;
    make_model(&m);
    struct ls_prices p = free_prices(4);
    p.replicas = 16;
    p.sum.beta = 1.5 / (10 * MIB);
    p.message.beta = 1.0 / (1000 * MIB);
    assert_non_null(strstr(chosen(&m, &p), "pipeline"));
    /* one layer that has most of the parameters, and little goes in and out */
    m.list[7].rows = 4096;
    m.list[7].inputs = m.list[7].results = 1000;
    m.list[7].grads = 1000 * MIB;
    for (int i = 0; i < 7; i++)
        m.list[i].grads = 1000;
    p.message.beta = 1.0 / (20 * MIB);
    assert_string_equal(chosen(&m, &p), "dense:4");
    p.processes = p.replicas = 16; /* more than share a layer: groups of them do */
    assert_string_equal(chosen(&m, &p), "data:2,dense:8");
}

static void what_does_not_fit_is_left_out(void **state)
{
    (void)state;
    struct model m;
    struct ls_candidate list[LS_MOST_CANDIDATES];
    int n;
    make_model(&m);
    struct ls_prices p = free_prices(4);
    p.limit = 30 * MIB; /* data needs 56, a stage of four at most 2 layers and 4 passes: 4 + 2 * 3 + 32 */
    int best = choose(&m, &p, list, &n);
    assert_non_null(strstr(list[0].why, "a process needs 56 MiB and has 30"));
    assert_true(best > 0);
    p.limit = 1; /* nothing fits: what takes least */
    best = choose(&m, &p, list, &n);
    for (int i = 0; i < n; i++)
        assert_true(list[i].p.bytes == 0 || list[i].p.bytes >= list[best].p.bytes);
}

static void stages_shrink_to_the_limit(void **state)
{
    (void)state;
    struct model m;
    int cuts[LS_MOST_STAGES];
    make_model(&m);
    struct ls_cut_rule rule = {.stages = 2, .passes = 4};
    assert_int_equal(ls_cut_evenly(&m.layers, &rule, cuts), LS_OK);
    assert_int_equal(cuts[1], 4);
    /* the first stage has the activations of two passes: 11 MiB a layer; the second has one: 7 MiB */
    rule.limit = 40 * MIB;
    assert_int_equal(ls_cut_evenly(&m.layers, &rule, cuts), LS_OK);
    assert_int_equal(cuts[1], 3);
    assert_true(ls_stage_memory(&m.layers, 0, 3, &rule, 0) <= rule.limit);
    assert_true(ls_stage_memory(&m.layers, 3, 8, &rule, 1) <= rule.limit);
    rule.limit = 1; /* no cut fits */
    assert_int_equal(ls_cut_evenly(&m.layers, &rule, cuts), LS_OK);
    assert_int_equal(cuts[1], 4);
}

static void cuts_avoid_slow_wires(void **state)
{
    (void)state;
    struct model m;
    int cuts[LS_MOST_STAGES];
    make_model(&m);
    m.list[6].crossing = 1000;
    struct ls_cut_rule rule = {.stages = 2, .passes = 1, .byte = 0.1 / MIB};
    assert_int_equal(ls_cut_evenly(&m.layers, &rule, cuts), LS_OK);
    assert_int_equal(cuts[1], 6);
}

static void layers_that_take_long_are_apart(void **state)
{
    (void)state;
    struct model m;
    int cuts[LS_MOST_STAGES];
    make_model(&m);
    m.list[0].backward = 19e-3;
    struct ls_cut_rule rule = {.stages = 2, .passes = 1};
    assert_int_equal(ls_cut_evenly(&m.layers, &rule, cuts), LS_OK);
    assert_int_equal(cuts[1], 1);
}

/* With equal stages and free messages a step takes (M + S - 1) passes of a stage. */
static void the_simulated_schedule_has_its_formula(void **state)
{
    (void)state;
    struct model m;
    struct ls_prediction out;
    make_model(&m);
    for (int stages = 2; stages <= 8; stages *= 2)
        for (int passes = stages; passes <= 32; passes *= 2) {
            struct ls_prices p = free_prices(stages);
            p.replicas = passes;
            assert_int_equal(ls_predict_pipeline(&m.layers, &p, stages, &out), LS_OK);
            assert_true(fabs(out.seconds - (passes + stages - 1) * 3e-3 * LAYERS / stages) < 1e-9);
        }
}

/* On one core, all work is done one after the other, however it is divided. */
static void shared_cores_are_shared(void **state)
{
    (void)state;
    struct model m;
    struct ls_candidate list[LS_MOST_CANDIDATES];
    int n;
    make_model(&m);
    struct ls_prices p = free_prices(4);
    p.cores = 1;
    choose(&m, &p, list, &n);
    for (int i = 0; i < n; i++)
        assert_true(*list[i].why || fabs(list[i].p.seconds - 4 * 3e-3 * LAYERS) < 1e-9);
}

/* Where nothing could be measured, times are estimates in other units. */
static void the_simulation_ends_in_any_unit(void **state)
{
    (void)state;
    struct model m;
    struct ls_prediction out;
    make_model(&m);
    for (int i = 0; i < LAYERS; i++) {
        m.list[i].forward = 1e9 / (3 + i);
        m.list[i].backward = 2e9 / (7 + i);
    }
    struct ls_prices p = free_prices(4);
    p.replicas = 7;
    p.cores = 1.3;
    assert_int_equal(ls_predict_pipeline(&m.layers, &p, 4, &out), LS_OK);
    assert_true(out.seconds > 1e9);
}

/* The passes of a step are added by one process: those of all workers where rows are divided, those of a stage in a pipeline. */
static void additions_of_passes_count(void **state)
{
    (void)state;
    struct model m;
    struct ls_prediction data, dense, out;
    int cuts[LS_MOST_STAGES];
    make_model(&m);
    m.list[7].rows = 4096;
    m.list[7].inputs = m.list[7].results = 1000;
    m.list[7].grads = 100 * MIB;
    struct ls_prices p = free_prices(4);
    p.add = 0.1e-3 / MIB;
    p.copy = 0.06e-3 / MIB;
    ls_predict_data(&m.layers, &p, &data);
    assert_true(fabs(data.work - 3e-3 * LAYERS) < 1e-9);
    assert_true(ls_predict_dense(&m.layers, &p, 4, &dense));
    assert_true(fabs(dense.work - data.work - (3 * 10e-3 + 2 * 6e-3) / 4) < 1e-9);
    assert_int_equal(ls_predict_pipeline(&m.layers, &p, 2, &out), LS_OK);
    assert_int_equal(out.cuts[1], 5); /* 22 ms for two passes of the last layer, and 6 ms for each other */
    struct ls_cut_rule rule = {.stages = 2, .passes = 2};
    assert_int_equal(ls_cut_evenly(&m.layers, &rule, cuts), LS_OK);
    assert_int_equal(cuts[1], 4);
}

static void cuts_have_names(void **state)
{
    (void)state;
    struct model m;
    make_model(&m);
    m.list[2].name = "conv2";
    m.list[5].name = "a+b";
    int cuts[] = {0, 2, 3, 5}, back[LS_MOST_STAGES];
    char *text = ls_cut_names(&m.layers, 4, cuts);
    assert_string_equal(text, "conv2+#3+#5");
    assert_int_equal(ls_cut_at(&m.layers, 4, text, (int)strlen(text), back), LS_OK);
    assert_memory_equal(back, cuts, sizeof cuts);
    ls_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_layouts_are_listed),
        cmocka_unit_test(one_process_has_the_whole_model),
        cmocka_unit_test(data_parallel_wins_where_sums_are_free),
        cmocka_unit_test(a_tie_goes_to_data),
        cmocka_unit_test(split_layers_on_shared_cores_must_be_clearly_faster_than_pipelines),
        cmocka_unit_test(slow_sums_are_avoided),
        cmocka_unit_test(what_does_not_fit_is_left_out),
        cmocka_unit_test(stages_shrink_to_the_limit),
        cmocka_unit_test(cuts_avoid_slow_wires),
        cmocka_unit_test(layers_that_take_long_are_apart),
        cmocka_unit_test(the_simulated_schedule_has_its_formula),
        cmocka_unit_test(shared_cores_are_shared),
        cmocka_unit_test(the_simulation_ends_in_any_unit),
        cmocka_unit_test(additions_of_passes_count),
        cmocka_unit_test(cuts_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
