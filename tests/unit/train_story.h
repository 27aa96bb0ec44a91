/* What a run leaves behind, for comparing runs: weights, state, and the story that metrics.jsonl tells. */
#ifndef LS_TESTS_TRAIN_STORY_H
#define LS_TESTS_TRAIN_STORY_H

#include "train_tiny.h"

#include <jansson.h>
#include <signal.h>

static inline void stop_at(void *context, uint64_t step)
{
    if (step == *(const uint64_t *)context)
        raise(SIGTERM);
}

static inline enum ls_status train_until(const struct ls_options *o, uint64_t step)
{
    struct ls_trainer t;
    LS_TRY(ls_trainer_open(&t, o, NULL));
    t.on_step = stop_at;
    t.context = &step;
    enum ls_status st = ls_trainer_run(&t);
    assert_true(st != LS_INTERRUPTED || t.state.step == step);
    ls_trainer_close(&t);
    return st;
}

/* metrics.jsonl without what a clock measured, and without the lines about ranks: a run that was stopped has more. */
static inline char *story(const char *run)
{
    char path[256], line[2048];
    char *text = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/metrics.jsonl", tiny_path(run));
    FILE *in = fopen(path, "r"), *out = open_memstream(&text, &size);
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        if (strcmp(json_string_value(json_object_get(object, "kind")), "rank") == 0) {
            json_decref(object);
            continue;
        }
        static const char *const clocks[] = {"samples_per_s",    "seconds",     "input_share",       "compute_share",
                                             "update_share",     "wait_share",  "gpu_clock_mhz",     "gpu_utilisation",
                                             "gpu_memory_bytes", "gpu_power_w", "gpu_temperature_c", "time",
                                             "loader_threads"};
        for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
            json_object_del(object, clocks[i]);
        json_dumpf(object, out, JSON_SORT_KEYS);
        fputc('\n', out);
        json_decref(object);
    }
    fclose(in);
    fclose(out);
    return text;
}

static inline void expect_same_run(const char *a, const char *b, int step)
{
    char x[128], y[128];
    static const char *const files[] = {"model.safetensors", "state.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(x, sizeof x, "%s/checkpoints/step-%08d/%s", a, step, files[i]);
        snprintf(y, sizeof y, "%s/checkpoints/step-%08d/%s", b, step, files[i]);
        assert_true(tiny_same(x, y));
    }
    char *told = story(a), *again = story(b);
    assert_string_equal(told, again);
    free(told);
    free(again);
}

static inline void forget(const char *run)
{
    assert_int_equal(ls_dir_remove(tiny_path(run)), LS_OK);
}

/* "stopped" goes on to where "whole" ended. Takes the options, and the run. */
static inline void expect_goes_on(struct ls_options *o)
{
    tiny_set(&o->resume, "auto");
    assert_int_equal(tiny_train(o), LS_OK);
    expect_same_run("whole", "stopped", 3 * TINY_STEPS);
    ls_options_release(o);
    forget("stopped");
}

#endif
