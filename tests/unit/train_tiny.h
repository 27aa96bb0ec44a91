/* A training run that takes a moment: a net with every kind of state (BN, dropout, momentum) on a few
 * synthetic images. Shared by the tests of checkpoints and of training. */
#ifndef LS_TESTS_TRAIN_TINY_H
#define LS_TESTS_TRAIN_TINY_H

#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* 110 samples in batches of 24: 5 steps an epoch, the last one uneven; 22 test samples. */
#define TINY_STEPS 5

static char tiny_folder[] = "/tmp/lockstep-train-XXXXXX";

static const char tiny_model[] = "input: 1x8x8\n"
                                 "classes: 4\n"
                                 "layers:\n"
                                 "  - {name: conv1, op: conv, out: 4, kernel: 3, pad: 1, bias: false}\n"
                                 "  - {name: bn1, op: bn}\n"
                                 "  - {name: relu1, op: relu}\n"
                                 "  - {name: pool1, op: maxpool, kernel: 2, stride: 2}\n"
                                 "  - {name: drop, op: dropout, p: 0.1}\n"
                                 "  - {name: fc, op: dense, out: classes}\n";
/* The same without what depends on how a batch is dealt to replicas. */
static const char plain_model[] = "input: 1x8x8\n"
                                  "classes: 4\n"
                                  "layers:\n"
                                  "  - {name: conv1, op: conv, out: 4, kernel: 3, pad: 1}\n"
                                  "  - {name: relu1, op: relu}\n"
                                  "  - {name: fc, op: dense, out: classes}\n";

/* A path in the test's folder; four may be in use at once. */
static const char *tiny_path(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", tiny_folder, name);
    return path;
}

static int tiny_begin(void **state)
{
    (void)state;
    if (!mkdtemp(tiny_folder))
        return -1;
    ls_log_mute(1);
    return ls_file_write(tiny_path("tiny.yaml"), tiny_model, strlen(tiny_model)) != LS_OK ||
           ls_file_write(tiny_path("plain.yaml"), plain_model, strlen(plain_model)) != LS_OK;
}

static int tiny_end(void **state)
{
    (void)state;
    ls_log_close();
    ls_log_mute(0);
    return ls_dir_remove(tiny_folder) != LS_OK;
}

static inline void tiny_set(char **field, const char *text)
{
    ls_free(*field);
    *field = text ? ls_strdup(text) : NULL;
}

/* The plain one, unless LOCKSTEP_TEST_BACKEND names another. */
static inline const char *tiny_backend(void)
{
    const char *name = getenv("LOCKSTEP_TEST_BACKEND");
    return name && *name ? name : "ref";
}

/* Options of a run into the folder `run` below the test's; released by ls_options_release. */
static struct ls_options tiny_options(const char *run)
{
    struct ls_options o;
    assert_int_equal(ls_options_default(&o), LS_OK);
    tiny_set(&o.model, tiny_path("tiny.yaml"));
    tiny_set(&o.data, "synthetic:1x8x8:4:110");
    tiny_set(&o.backend, tiny_backend());
    tiny_set(&o.schedule, "constant");
    tiny_set(&o.run, tiny_path(run));
    o.batch = 24;
    o.epochs = 3;
    o.lr = 0.05;
    o.threads = o.loader_threads = 1;
    o.tune = false;
    o.quiet = true;
    return o;
}

/* Open, run, close. */
static inline enum ls_status tiny_train(const struct ls_options *o)
{
    struct ls_trainer t;
    LS_TRY(ls_trainer_open(&t, o, NULL));
    enum ls_status st = ls_trainer_run(&t);
    ls_trainer_close(&t);
    return st;
}

/* Are two files of the test's folder the same? */
static inline bool tiny_same(const char *a, const char *b)
{
    char *x, *y;
    size_t x_size, y_size;
    assert_int_equal(ls_file_read(tiny_path(a), 1 << 28, &x, &x_size), LS_OK);
    assert_int_equal(ls_file_read(tiny_path(b), 1 << 28, &y, &y_size), LS_OK);
    bool same = x_size == y_size && memcmp(x, y, x_size) == 0;
    ls_free(x);
    ls_free(y);
    return same;
}

#endif
