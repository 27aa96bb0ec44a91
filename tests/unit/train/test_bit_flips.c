/* A bit that flips at one of several processes is found before a checkpoint with it is saved (K6 of checkpoint/checkpoint.h),
 * and the process is named where that can be told. */
#include "train_tiny.h"
#include "comm_ranks.h"

#include "optim/optim.h"

#include <inttypes.h>

enum part { PARAMETER, RUNNING, MOMENTUM };

struct flip {
    const char *sync;
    int ranks, servers;
    enum part part;
    int victim;
    int64_t checkpoint_every, check_every;
    uint64_t at;          /* after this step */
    const char *expected; /* in the message; NULL: nothing is noticed */
    struct ls_options o;
};

static int tensor_of(const struct ls_graph *g, enum part part)
{
    const enum ls_role roles[] = {
        [PARAMETER] = LS_ROLE_PARAM, [RUNNING] = LS_ROLE_STATE, [MOMENTUM] = LS_ROLE_OPTIMIZER};
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == roles[part])
            return t;
    return LS_NONE;
}

static void flip_bit(const struct ls_engine *e, enum part part)
{
    int t = tensor_of(&e->train.graph, part);
    size_t bytes;
    NEED(t != LS_NONE);
    uint32_t *word = e->backend->memory(e->train.program, t, &bytes);
    *word ^= 1u << 22;
}

struct flipping {
    const struct flip *f;
    struct ls_trainer *t;
};

static void flip_after_step(void *context, uint64_t step)
{
    const struct flipping *x = context;
    if (step == x->f->at && ls_comm_rank(x->t->comm) == x->f->victim)
        flip_bit(&x->t->engine, x->f->part);
}

/* With servers: on the way of what they send when all come together. */
static struct ls_sync_ops flipping_ops;
static enum ls_status (*honest_collect)(struct ls_sync *s);
static const struct flipping *flipping;

static enum ls_status flip_collected(struct ls_sync *s)
{
    enum ls_status st = honest_collect(s);
    bool due = flipping->t->state.step == flipping->f->at && ls_comm_rank(s->comm) == flipping->f->victim;
    if (due)
        flip_bit(&flipping->t->engine, flipping->f->part);
    return st;
}

static void flip_rank(struct ls_comm *c, const struct ranks *r)
{
    const struct flip *f = r->argument;
    struct ls_trainer t;
    struct flipping x = {f, &t};
    NEED(ls_trainer_open(&t, &f->o, c) == LS_OK);
    if (f->servers > 0) {
        flipping = &x;
        flipping_ops = *t.stepper.sync.ops;
        honest_collect = flipping_ops.collect;
        flipping_ops.collect = flip_collected;
        t.stepper.sync.ops = &flipping_ops;
    } else {
        t.on_step = flip_after_step;
        t.context = &x;
    }
    enum ls_status st = ls_trainer_run(&t);
    NEED(st == (f->expected ? LS_FAILED : LS_OK));
    NEED(!f->expected || (t.all_know && strstr(ls_log_last(), f->expected)));
    ls_trainer_close(&t);
    ls_comm_close(c, LS_OK);
}

static void train_flipped(struct flip *f)
{
    f->o = tiny_options("flipped");
    tiny_set(&f->o.backend, "ref");
    tiny_set(&f->o.sync, f->sync);
    f->o.replicas = f->ranks - f->servers;
    f->o.servers = f->servers;
    f->o.cutoff_k = f->ranks - f->servers;
    f->o.local_steps = 3;
    f->o.evaluate = false;
    f->o.steps = 2 * TINY_STEPS + 2;
    f->o.keep = 100;
    f->o.checkpoint_every = f->checkpoint_every;
    f->o.check_every = f->check_every;
    run_ranks((struct ranks){.size = f->ranks, .replicas = f->servers > 0 ? 0 : f->ranks, .argument = f}, flip_rank);
    ls_options_release(&f->o);
}

static bool saved(uint64_t step)
{
    char path[64];
    snprintf(path, sizeof path, "flipped/checkpoints/step-%08" PRIu64 "/state.json", step);
    return ls_file_exists(tiny_path(path));
}

static void test_found_before_saving(void **state)
{
    (void)state;
    struct flip cases[] = {
        {"overlap", 3, 0, PARAMETER, 1, 3, 1000, 6, "the parameters of rank 1 (", {0}},
        {"overlap", 4, 0, RUNNING, 0, 3, 1000, 6, "the running statistics of rank 0 (", {0}},
        {"overlap", 3, 0, MOMENTUM, 2, 3, 1000, 6, "the optimizer state of rank 2 (", {0}},
        {"allreduce", 3, 0, MOMENTUM, 0, 3, 1000, 6, "the optimizer state of rank 0 (", {0}},
        {"gather", 3, 0, PARAMETER, 0, 3, 1000, 6, "the parameters of rank 0 (", {0}},
        {"server", 3, 0, PARAMETER, 2, 3, 1000, 6, "the parameters of rank 2 (", {0}},
        {"local", 3, 0, RUNNING, 1, 3, 1000, 6, "the running statistics of rank 1 (", {0}},
        {"server", 4, 1, PARAMETER, 0, 0, 1000, 10, "the parameters of rank 0 (", {0}},
        {"async", 4, 1, RUNNING, 0, 0, 1000, 10, "the running statistics of rank 0 (", {0}},
        {"cutoff", 4, 1, MOMENTUM, 0, 0, 1000, 10, "the optimizer state of rank 0 (", {0}},
        {"overlap", 2, 0, PARAMETER, 0, 3, 1000, 6, "it cannot be told at which", {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_state s;
        char *folder;
        train_flipped(&cases[i]);
        uint64_t last = cases[i].servers ? TINY_STEPS : 3;
        assert_false(saved(cases[i].at));
        assert_true(saved(last));
        assert_int_equal(ls_checkpoint_find(tiny_path("flipped"), &folder, &s, NULL), LS_OK);
        assert_true(s.step == last && s.verified);
        ls_free(folder);
        ls_dir_remove(tiny_path("flipped"));
    }
}

/* Between two checkpoints, every --check-every steps; 0: never, and what is saved is not marked. */
static void test_found_between(void **state)
{
    (void)state;
    struct flip found = {"overlap", 3, 0, RUNNING, 1, 1000, 4, 6, "step 8: the running statistics of rank 1 (", {0}};
    struct flip never = {"overlap", 3, 0, PARAMETER, 1, 6, 0, 6, NULL, {0}};
    struct ls_state s;
    train_flipped(&found);
    ls_dir_remove(tiny_path("flipped"));
    train_flipped(&never);
    assert_int_equal(ls_checkpoint_read(tiny_path("flipped/checkpoints/step-00000006"), &s), LS_OK);
    assert_false(s.verified);
    ls_dir_remove(tiny_path("flipped"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_before_saving),
        cmocka_unit_test(test_found_between),
    };
    return cmocka_run_group_tests_name("flips", tests, tiny_begin, tiny_end);
}
