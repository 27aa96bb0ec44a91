/* Checkpoints: whole or not there, the newest good one, and nothing lost. Cites K1 .. K7 of
 * checkpoint/checkpoint.h. */
#include "train_tiny.h"

#include "base/files/file.h"
#include "checkpoint/weights.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ls_options options;
static struct ls_trainer trainer;

static int begin(void **state)
{
    if (tiny_begin(state) != 0)
        return -1;
    options = tiny_options("open");
    return ls_trainer_open(&trainer, &options, NULL) != LS_OK;
}

static int end(void **state)
{
    ls_trainer_close(&trainer);
    ls_options_release(&options);
    return tiny_end(state);
}

static bool verified = true;

static enum ls_status save(const char *run, uint64_t step, uint64_t best, int64_t keep)
{
    struct ls_state s = trainer.state;
    s.verified = verified;
    s.step = step;
    s.position = 48;
    s.epoch = 7;
    s.done = (struct ls_report){.step_in_epoch = 2, .samples = 48, .loss = 0.1, .top1 = 1.0 / 3, .seconds = 1e-9};
    s.best_step = best;
    s.best_top1 = best ? 0.9 : -1;
    struct ls_checkpoint_writer w = {0};
    LS_TRY(ls_checkpoint_begin(&w, tiny_path(run), &trainer.engine, &trainer.card, NULL, &s, keep));
    return ls_checkpoint_finish(&w);
}

static const char *newest(const char *run, struct ls_state *s)
{
    static char name[64];
    char *folder;
    assert_int_equal(ls_checkpoint_find(tiny_path(run), &folder, s, NULL), LS_OK);
    snprintf(name, sizeof name, "%s", strrchr(folder, '/') + 1);
    ls_free(folder);
    return name;
}

static bool exists(const char *run, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoints/%s", tiny_path(run), name);
    return ls_file_exists(path);
}

static void damage(const char *run, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoints/%s", tiny_path(run), file);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -3, SEEK_END);
    int c = fgetc(f);
    fseek(f, -3, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct ls_state s;
    assert_int_equal(save("round", 1234, 1234, 3), LS_OK);
    assert_string_equal(newest("round", &s), "step-00001234");
    assert_int_equal(s.step, 1234);
    assert_int_equal(s.epoch, 7);
    assert_int_equal(s.position, 48);
    assert_int_equal(s.batch, 24);
    assert_int_equal(s.done.samples, 48);
    assert_true(s.done.loss == 0.1 && s.done.top1 == 1.0 / 3 && s.done.seconds == 1e-9);
    assert_true(exists("round", "best/model.safetensors"));
    assert_false(exists("round", "step-00001234.tmp"));
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"conv1.weight",     "bn1.weight",      "bn1.bias",
                                        "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked",
                                        "fc.weight",        "fc.bias"};
    struct ls_safetensors file;
    assert_int_equal(save("names", 99, 0, 3), LS_OK);
    assert_int_equal(ls_safetensors_open(tiny_path("names/checkpoints/step-00000099/model.safetensors"), &file), LS_OK);
    assert_int_equal(file.n_tensors, 8);
    for (int i = 0; i < 8; i++)
        assert_non_null(ls_safetensors_find(&file, names[i]));
    int64_t tracked;
    memcpy(&tracked, ls_safetensors_find(&file, names[5])->data, sizeof tracked);
    assert_int_equal(tracked, 99);
    assert_string_equal(ls_safetensors_metadata(&file, "lockstep.input"), "1x8x8");
    ls_safetensors_release(&file);
    assert_int_equal(ls_safetensors_open(tiny_path("names/checkpoints/step-00000099/state.safetensors"), &file), LS_OK);
    assert_int_equal(file.n_tensors, 5);
    assert_non_null(ls_safetensors_find(&file, "conv1.weight.momentum"));
    ls_safetensors_release(&file);
}

static void test_keeps_newest_and_best(void **state)
{
    (void)state;
    for (uint64_t step = 10; step <= 60; step += 10)
        assert_int_equal(save("keep", step, step >= 20 ? 20 : 0, 2), LS_OK);
    assert_true(exists("keep", "step-00000060") && exists("keep", "step-00000050") && exists("keep", "step-00000020"));
    assert_false(exists("keep", "step-00000010") || exists("keep", "step-00000030") || exists("keep", "step-00000040"));
    assert_true(exists("keep", "best/state.json"));
}

/* K3 */
static void test_damaged_is_passed_over(void **state)
{
    (void)state;
    static const char *const parts[] = {"model.safetensors", "state.safetensors", "state.json", "config.yaml",
                                        "data.json"};
    struct ls_state s;
    assert_int_equal(save("damaged", 10, 0, 9), LS_OK);
    assert_int_equal(ls_file_write(tiny_path("damaged/config.yaml"), "model: tiny\n", 12), LS_OK);
    for (int i = 0; i < 5; i++) {
        char file[64];
        assert_int_equal(save("damaged", 20, 0, 9), LS_OK);
        snprintf(file, sizeof file, "step-00000020/%s", parts[i]);
        damage("damaged", file);
        assert_string_equal(newest("damaged", &s), "step-00000010");
        assert_non_null(strstr(ls_log_last(), file));
    }
    damage("damaged", "step-00000010/model.safetensors");
    char *folder;
    assert_int_equal(ls_checkpoint_find(tiny_path("damaged"), &folder, &s, NULL), LS_BAD_INPUT);
    assert_int_equal(ls_checkpoint_find(tiny_path("never"), &folder, &s, NULL), LS_BAD_INPUT);
}

static char *read_state(const char *path, size_t *size)
{
    char *text;
    assert_int_equal(ls_file_read(tiny_path(path), 1 << 20, &text, size), LS_OK);
    return text;
}

/* K3: any bit of state.json. A digit of its checksum may change its case, which changes nothing. */
static void test_flipped_state(void **state)
{
    (void)state;
    struct ls_state good, s;
    char reason[512];
    size_t size;
    assert_int_equal(save("flipped", 20, 0, 9), LS_OK);
    char *text = read_state("flipped/checkpoints/step-00000020/state.json", &size);
    assert_true(ls_state_parse(text, size, &good, reason, sizeof reason));
    for (size_t bit = 0; bit < 8 * size; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
        if (ls_state_parse(text, size, &s, reason, sizeof reason))
            assert_memory_equal(&s, &good, sizeof s);
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    }
    ls_free(text);
}

/* The text as older versions wrote it: with checksums of two files only. If key is given, with another value of it. */
static void make_older(char *text, const char *key, const char *value, char *older, size_t room)
{
    char *own = strstr(text, ",\n    \"state.json\""), *end = strstr(own, "\n  }");
    memmove(own, end, strlen(end) + 1);
    char *at = key ? strstr(text, key) : NULL;
    assert_true(!key || at);
    size_t before = at ? (size_t)(at - text) + strlen(key) : 0;
    int used = snprintf(older, room, "%.*s%s", (int)before, text, at ? value : "");
    snprintf(older + used, room - (size_t)used, "%s",
             at ? at + strlen(key) + strspn(at + strlen(key), "0123456789") : text);
}

static void test_older_state(void **state)
{
    (void)state;
    static const char *const keys[] = {"\"step\": ",    "\"epoch\": ",     "\"position\": ", "\"steps\": ",
                                       "\"samples\": ", "\"best_step\": ", "\"batch\": "};
    struct ls_state s;
    char older[8192], reason[512];
    size_t size;
    assert_int_equal(save("older", 20, 0, 9), LS_OK);
    for (int i = -1; i < (int)(sizeof keys / sizeof *keys); i++) {
        char *text = read_state("older/checkpoints/step-00000020/state.json", &size);
        make_older(text, i < 0 ? NULL : keys[i], "9223372036854775807", older, sizeof older);
        assert_int_equal(ls_state_parse(older, strlen(older), &s, reason, sizeof reason), i < 0);
        ls_free(text);
    }
    char *text = read_state("older/checkpoints/step-00000020/state.json", &size);
    make_older(text, "\"step\": ", "21", older, sizeof older);
    assert_int_equal(ls_file_write(tiny_path("older/checkpoints/step-00000020/state.json"), older, strlen(older)),
                     LS_OK);
    ls_free(text);
    assert_int_equal(ls_checkpoint_read(tiny_path("older/checkpoints/step-00000020"), &s), LS_BAD_INPUT);
    assert_non_null(strstr(ls_log_last(), "it is of step 21, the folder's name is step-00000020"));
}

/* The name decides only where it says a step; a link is followed. */
static void test_renamed(void **state)
{
    (void)state;
    struct ls_state s;
    char all[512], to[512];
    assert_int_equal(save("renamed", 20, 20, 9), LS_OK);
    assert_int_equal(ls_checkpoint_read(tiny_path("renamed/checkpoints/best"), &s), LS_OK);
    snprintf(all, sizeof all, "%s", tiny_path("renamed/checkpoints/step-00000020"));
    snprintf(to, sizeof to, "%s", tiny_path("renamed/checkpoints/step-00000030"));
    assert_int_equal(rename(all, to), 0);
    assert_int_equal(ls_checkpoint_read(to, &s), LS_BAD_INPUT);
    snprintf(all, sizeof all, "%s", tiny_path("renamed/kept"));
    assert_int_equal(rename(to, all), 0);
    assert_int_equal(ls_checkpoint_read(all, &s), LS_OK);
}

static void save_as(const char *run, uint64_t step, bool compared)
{
    verified = compared;
    assert_int_equal(save(run, step, 0, 9), LS_OK);
    verified = true;
}

/* K6 */
static void test_verified_is_preferred(void **state)
{
    (void)state;
    struct ls_state s;
    save_as("verified", 10, false);
    save_as("verified", 20, false);
    assert_string_equal(newest("verified", &s), "step-00000020");
    save_as("verified", 30, true);
    save_as("verified", 40, true);
    assert_string_equal(newest("verified", &s), "step-00000040");
    save_as("verified", 50, false);
    save_as("verified", 60, false);
    assert_string_equal(newest("verified", &s), "step-00000040");
    assert_non_null(strstr(ls_log_last(), "step-00000060: the processes did not compare its weights"));
    damage("verified", "step-00000040/model.safetensors");
    assert_string_equal(newest("verified", &s), "step-00000030");
    damage("verified", "step-00000030/model.safetensors");
    assert_string_equal(newest("verified", &s), "step-00000060");
    assert_int_equal(s.step, 60);
    damage("verified", "step-00000060/state.json");
    assert_string_equal(newest("verified", &s), "step-00000050");
}

/* K5, and K2 where the newest is not the one gone on from: the good one survives a keep of one. */
static void test_one_story(void **state)
{
    (void)state;
    struct ls_state s;
    assert_int_equal(save("story", 100, 0, 9), LS_OK);
    assert_int_equal(save("story", 200, 0, 9), LS_OK);
    damage("story", "step-00000200/model.safetensors");
    assert_int_equal(save("story", 150, 0, 1), LS_OK);
    assert_string_equal(newest("story", &s), "step-00000150");
    assert_false(exists("story", "step-00000200") || exists("story", "step-00000100"));
}

/* K7: a checkpoint that is read stays until a save after its reader has ended, except for K5. */
static void test_held(void **state)
{
    (void)state;
    struct ls_state s;
    FILE *held;
    char *folder;
    assert_int_equal(save("held", 10, 0, 1), LS_OK);
    assert_int_equal(ls_checkpoint_find(tiny_path("held"), &folder, &s, &held), LS_OK);
    assert_non_null(held);
    assert_int_equal(save("held", 20, 0, 1), LS_OK);
    assert_int_equal(ls_checkpoint_read(folder, &s), LS_OK);
    assert_string_equal(newest("held", &s), "step-00000020");
    ls_checkpoint_let_go(&held);
    assert_null(held);
    assert_int_equal(save("held", 30, 0, 1), LS_OK);
    assert_false(exists("held", "step-00000010") || exists("held", "step-00000020"));
    assert_null(ls_checkpoint_hold(folder));
    ls_free(folder);

    assert_int_equal(ls_checkpoint_find(tiny_path("held"), &folder, &s, &held), LS_OK);
    assert_int_equal(save("held", 25, 0, 1), LS_OK);
    assert_false(exists("held", "step-00000030"));
    assert_string_equal(newest("held", &s), "step-00000025");
    ls_checkpoint_let_go(&held);
    ls_free(folder);
}

/* Finding a checkpoint of a run that saves and removes as fast as it can always gives a whole one. */
static void test_found_while_saving(void **state)
{
    (void)state;
    assert_int_equal(save("busy", 1, 0, 1), LS_OK);
    pid_t child = fork();
    if (child == 0) {
        for (uint64_t step = 2; save("busy", step, step / 3, 1) == LS_OK;)
            step++;
        _exit(1);
    }
    for (int i = 0; i < 200; i++) {
        struct ls_state s;
        FILE *held;
        char *folder;
        assert_int_equal(ls_checkpoint_find(tiny_path("busy"), &folder, &s, &held), LS_OK);
        assert_int_equal(ls_checkpoint_read(folder, &s), LS_OK);
        ls_checkpoint_let_go(&held);
        ls_free(folder);
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_same_step_again(void **state)
{
    (void)state;
    struct ls_state s;
    assert_int_equal(save("again", 10, 0, 3), LS_OK);
    damage("again", "step-00000010/state.safetensors");
    assert_int_equal(save("again", 10, 0, 3), LS_OK);
    assert_string_equal(newest("again", &s), "step-00000010");
    assert_false(exists("again", "step-00000010.tmp"));
}

/* K1: what a crash left is neither taken for a checkpoint nor kept. */
static void test_leftovers(void **state)
{
    (void)state;
    struct ls_state s;
    assert_int_equal(save("left", 10, 0, 3), LS_OK);
    assert_int_equal(ls_dir_make(tiny_path("left/checkpoints/step-00000020.tmp")), LS_OK);
    assert_int_equal(ls_file_write(tiny_path("left/checkpoints/step-00000020.tmp/model.safetensors"), "x", 1), LS_OK);
    assert_string_equal(newest("left", &s), "step-00000010");
    assert_int_equal(save("left", 30, 0, 3), LS_OK);
    assert_false(exists("left", "step-00000020.tmp"));
}

static void test_full_disk(void **state)
{
    (void)state;
    struct rlimit before, little;
    struct ls_state s;
    assert_int_equal(save("full", 10, 0, 1), LS_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t room = 0; room < 2500; room += 500) {
        little = before;
        little.rlim_cur = room;
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &little);
        enum ls_status st = save("full", 20, 0, 1);
        setrlimit(RLIMIT_FSIZE, &before);
        signal(SIGXFSZ, SIG_DFL);
        assert_int_equal(st, LS_FAILED);
        assert_non_null(strstr(ls_log_last(), "full/checkpoints"));
        assert_false(exists("full", "step-00000020.tmp") || exists("full", "step-00000020"));
        assert_string_equal(newest("full", &s), "step-00000010");
    }
}

static void test_unwritable(void **state)
{
    (void)state;
    assert_int_equal(ls_dir_make(tiny_path("blocked")), LS_OK);
    assert_int_equal(ls_file_write(tiny_path("blocked/checkpoints"), "x", 1), LS_OK);
    assert_int_equal(save("blocked", 10, 0, 1), LS_FAILED);
    assert_non_null(strstr(ls_log_last(), "blocked/checkpoints"));
}

/* K1, K2: killed at any moment of saving, a run has a checkpoint not older than the last one it had finished.
 */
static void test_killed_while_saving(void **state)
{
    (void)state;
    if (getenv("LOCKSTEP_TEST_BACKEND")) /* a card does not survive fork */
        skip();
    for (uint64_t round = 0; round < 10; round++) {
        int pipes[2];
        uint64_t done = 0, last = 0;
        struct ls_state s;
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            for (uint64_t step = 1;; step++)
                if (save("killed", step, 0, 1) != LS_OK || write(pipes[1], &step, sizeof step) != sizeof step)
                    _exit(1);
        }
        close(pipes[1]);
        while (done <= round && read(pipes[0], &done, sizeof done) == sizeof done)
            last = done;
        kill(child, SIGKILL);
        while (read(pipes[0], &done, sizeof done) == sizeof done)
            last = done;
        waitpid(child, NULL, 0);
        close(pipes[0]);
        newest("killed", &s);
        assert_true(s.step >= last);
        assert_int_equal(ls_dir_remove(tiny_path("killed")), LS_OK);
    }
}

static void test_not_finite(void **state)
{
    (void)state;
    const struct ls_graph *g = &trainer.engine.train.graph;
    int bias = ls_graph_find(g, "fc.bias");
    float before[4], values[4] = {0, NAN, 0, 0};
    assert_int_equal(trainer.engine.backend->read(trainer.engine.train.program, bias, before), LS_OK);
    assert_int_equal(trainer.engine.backend->write(trainer.engine.train.program, bias, values), LS_OK);
    enum ls_status st = save("nan", 10, 0, 1);
    assert_int_equal(trainer.engine.backend->write(trainer.engine.train.program, bias, before), LS_OK);
    assert_int_equal(st, LS_DIVERGED);
    assert_non_null(strstr(ls_log_last(), "fc.bias"));
    assert_false(exists("nan", "step-00000010") || exists("nan", "step-00000010.tmp"));
}

/* A file that does not fit changes no weight. */
static void test_foreign_weights(void **state)
{
    (void)state;
    static const int64_t four[1] = {4}, five[1] = {5};
    static const float values[5] = {1, 2, 3, 4, 5};
    const struct ls_st_tensor small[] = {
        {.name = "fc.bias", .type = LS_ST_F32, .rank = 1, .dim = four, .data = values}};
    struct ls_safetensors file;
    const char *path = tiny_path("foreign.safetensors");
    assert_int_equal(ls_safetensors_write(path, NULL, 0, small, 1, NULL, NULL, NULL), LS_OK);
    assert_int_equal(ls_weights_load(&trainer.engine, LS_WEIGHTS_MODEL, path), LS_BAD_INPUT);

    assert_int_equal(save("foreign", 1, 0, 1), LS_OK);
    assert_int_equal(ls_safetensors_open(tiny_path("foreign/checkpoints/step-00000001/model.safetensors"), &file),
                     LS_OK);
    struct ls_st_tensor tensors[9];
    memcpy(tensors, file.tensors, 8 * sizeof *tensors);
    tensors[8] = small[0];
    tensors[8].name = "extra";
    assert_int_equal(ls_safetensors_write(path, NULL, 0, tensors, 9, NULL, NULL, NULL), LS_OK);
    assert_int_equal(ls_weights_load(&trainer.engine, LS_WEIGHTS_MODEL, path), LS_BAD_INPUT);
    assert_non_null(strstr(ls_log_last(), "extra"));
    for (int i = 0; i < 8; i++)
        if (strcmp(tensors[i].name, "fc.bias") == 0)
            tensors[i] =
                (struct ls_st_tensor){.name = "fc.bias", .type = LS_ST_F32, .rank = 1, .dim = five, .data = values};
    assert_int_equal(ls_safetensors_write(path, NULL, 0, tensors, 8, NULL, NULL, NULL), LS_OK);
    assert_int_equal(ls_weights_load(&trainer.engine, LS_WEIGHTS_MODEL, path), LS_BAD_INPUT);
    assert_non_null(strstr(ls_log_last(), "fc.bias is 5, but the model has 4"));
    ls_safetensors_release(&file);

    assert_int_equal(save("foreign", 2, 0, 2), LS_OK);
    assert_true(tiny_same("foreign/checkpoints/step-00000001/state.safetensors",
                          "foreign/checkpoints/step-00000002/state.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_keeps_newest_and_best),
        cmocka_unit_test(test_damaged_is_passed_over),
        cmocka_unit_test(test_flipped_state),
        cmocka_unit_test(test_older_state),
        cmocka_unit_test(test_renamed),
        cmocka_unit_test(test_verified_is_preferred),
        cmocka_unit_test(test_one_story),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_found_while_saving),
        cmocka_unit_test(test_same_step_again),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_killed_while_saving),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_foreign_weights),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
