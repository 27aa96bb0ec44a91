/* bench --with-input: steps that take their batches from the loader of --data, as training does. */
#include "base/log.h"
#include "cmd/bench/session.h"

enum { RING = 4 };

/* Every step is full: the rest of an epoch that does not fill one is left out. */
static enum ls_status whole_steps(const struct ls_bench_session *b, int64_t *samples)
{
    int64_t count = ls_dataset_info(b->task.train)->count;
    *samples = count / b->o->batch * b->o->batch;
    if (*samples > 0)
        return LS_OK;
    return ls_fail(LS_USAGE, "--batch %lld: %s has only %lld samples", (long long)b->o->batch, b->o->data,
                   (long long)count);
}

enum ls_status ls_bench_open_input(struct ls_bench_session *b)
{
    int most, threads = ls_task_loader_threads(b->o, &b->engine, &most), slices = b->stepper.replicas.n_slices;
    struct ls_loader_options options = {
        .set = b->task.train,
        .augment = b->task.augment,
        .seed = b->o->seed,
        .shuffle = b->o->shuffle,
        .threads = threads,
        .max_threads = most,
        .ring = (b->comm && slices > 2 ? 2 + slices : RING) + b->stepper.report_delay,
        .held = b->stepper.report_delay,
        .batch = b->task.size.batch,
        .parts = b->engine.tree->replicas * b->engine.passes,
        .step = b->o->batch,
        .order = b->stepper.replicas.order,
        .own = slices,
    };
    LS_TRY(whole_steps(b, &options.epoch_samples));
    LS_TRY(ls_device_dataset_open(&b->stepper.train, &b->engine, &b->engine.train, b->task.train, &b->task.augment));
    options.form = b->stepper.train.form;
    if (options.own == 0)
        return LS_OK;
    LS_TRY(ls_loader_new(&options, &b->loader));
    ls_feed_pin(&b->engine, b->loader);
    b->stepper.feed = ls_feed_loader(b->loader);
    return LS_OK;
}

void ls_bench_close_input(struct ls_bench_session *b)
{
    if (b->loader)
        ls_feed_unpin(&b->engine, b->loader);
    ls_loader_free(b->loader);
}
