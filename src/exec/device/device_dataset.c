#include "exec/device/device_dataset.h"
#include "exec/pipeline/pipeline.h"
#include "base/log.h"
#include "base/memory.h"

#include <omp.h>
#include <string.h>

/* Bytes that are read before they go to the backend together. */
#define CHUNK_BYTES ((size_t)64 << 20)

/* --- reading a data set --------------------------------------------------------------------------------------- */

/* One sample, which must be as large as the data set says. */
static bool read_one(struct ls_dataset *set, int64_t i, struct ls_image *image, uint8_t *to)
{
    const struct ls_dataset_info *info = ls_dataset_info(set);
    int32_t label;
    if (ls_dataset_try(set, i, NULL, image, &label) != LS_OK || image->channels != info->channels ||
        image->height != info->height || image->width != info->width)
        return false;
    memcpy(to, image->pixels, (size_t)(info->channels * info->height * info->width));
    return true;
}

/* Samples first .. first+count-1, by all threads; whether all of them could be had. */
static bool read_some(struct ls_dataset *set, int64_t first, int64_t count, size_t each, struct ls_image *scratch,
                      uint8_t *to)
{
    int missing = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(| : missing)
    for (int64_t i = 0; i < count; i++)
        missing |= !read_one(set, first + i, &scratch[omp_get_thread_num()], to + (size_t)i * each);
    return !missing;
}

/* The whole data set to `memory`; *complete false where it cannot be had. */
static enum ls_status fill(const struct ls_backend *b, struct ls_dataset *set, size_t each, char *memory,
                           bool *complete)
{
    enum ls_status st = LS_OK;
    int threads = omp_get_max_threads();
    int64_t count = ls_dataset_info(set)->count, most = (int64_t)(CHUNK_BYTES / each) + 1;
    most = most < count ? most : count;
    void *staged = NULL;
    size_t staged_bytes = (size_t)most * each;
    struct ls_image *scratch = ls_alloc((size_t)threads, sizeof *scratch);
    if (!scratch)
        return LS_FAILED;
    LS_TRY_GOTO(free_scratch, ls_region_map(staged_bytes, &staged));
    b->queue->pin(staged, staged_bytes);
    *complete = true;
    for (int64_t first = 0; first < count && *complete && st == LS_OK; first += most) {
        int64_t n = count - first < most ? count - first : most;
        *complete = read_some(set, first, n, each, scratch, staged);
        if (*complete)
            st = b->queue->put(memory + (size_t)first * each, staged, (size_t)n * each);
    }
    b->queue->unpin(staged);
    ls_region_unmap(staged, staged_bytes);
free_scratch:
    for (int i = 0; i < threads; i++)
        ls_image_release(&scratch[i]);
    ls_free(scratch);
    return st;
}

/* s->held stays NULL where the data set does not fit, or cannot be had. */
static enum ls_status hold(struct ls_device_dataset *s, struct ls_dataset *set)
{
    const struct ls_dataset_info *info = ls_dataset_info(set);
    const struct ls_backend_queue *queue = s->backend->queue;
    size_t each = (size_t)(info->channels * info->height * info->width), bytes;
    bool complete = false;
    void *memory;
    if (each == 0 || info->count < 1 || __builtin_mul_overflow(each, (size_t)info->count, &bytes))
        return LS_OK;
    LS_TRY(queue->hold(bytes, &memory));
    if (!memory)
        return LS_OK;
    enum ls_status st = fill(s->backend, set, each, memory, &complete);
    if (st == LS_OK && complete) {
        s->held = memory;
        s->held_bytes = bytes;
        ls_note("%lld images (%.1f MiB) are in the memory of backend %s.", (long long)info->count,
                (double)bytes / 1048576, s->backend->name);
        return LS_OK;
    }
    queue->give(memory, bytes);
    return st;
}

/* --- the decision --------------------------------------------------------------------------------------------- */

static bool takes_bytes(const struct ls_backend *b, int64_t channels)
{
    return b->queue->source && (channels == 1 || channels == 3);
}

/* Of all programs that read the net's images: a pipeline has one a lane. */
static enum ls_status set_source(const struct ls_engine *e, const struct ls_net *net, const struct ls_pixels *pixels,
                                 const void *held)
{
    const struct ls_pipeline *p = net == &e->train ? e->pipeline : NULL;
    for (int lane = 1; p && lane < p->n_lanes; lane++)
        LS_TRY(e->backend->queue->source(p->lanes[lane].net->program, pixels, held));
    return e->backend->queue->source(net->program, pixels, held);
}

enum ls_status ls_device_dataset_open(struct ls_device_dataset *s, const struct ls_engine *e, const struct ls_net *net,
                                      struct ls_dataset *set, const struct ls_augment *a)
{
    const struct ls_dataset_info *info = ls_dataset_info(set);
    *s = (struct ls_device_dataset){.open = true, .form = LS_FORM_PLANES, .backend = e->backend};
    if (!takes_bytes(e->backend, a->channels) || !ls_engine_reads_samples(e))
        return LS_OK;
    if (ls_augment_only_crops(a, info))
        LS_TRY(hold(s, set));
    s->form = s->held ? LS_FORM_CROPS : LS_FORM_PIXELS;
    struct ls_pixels pixels = ls_augment_source(a, s->held ? info : NULL);
    return set_source(e, net, &pixels, s->held);
}

enum ls_status ls_device_dataset_share(const struct ls_device_dataset *s, const struct ls_net *net,
                                       const struct ls_dataset *set, const struct ls_augment *a)
{
    if (s->form == LS_FORM_PLANES)
        return LS_OK;
    struct ls_pixels pixels = ls_augment_source(a, s->held ? ls_dataset_info(set) : NULL);
    return s->backend->queue->source(net->program, &pixels, s->held);
}

enum ls_status ls_device_dataset_open_bytes(struct ls_device_dataset *s, const struct ls_engine *e,
                                            const struct ls_net *net, const struct ls_pixels *pixels)
{
    *s = (struct ls_device_dataset){.open = true, .form = LS_FORM_PLANES, .backend = e->backend};
    if (!takes_bytes(e->backend, pixels->channels) || !ls_engine_reads_samples(e))
        return LS_OK;
    s->form = LS_FORM_PIXELS;
    return set_source(e, net, pixels, NULL);
}

enum ls_status ls_device_dataset_input(const struct ls_backend *b, const struct ls_net *net, const struct ls_slot *slot)
{
    if (slot->form == LS_FORM_PLANES)
        LS_TRY(b->input(net->program, net->graph.input, slot->images));
    else
        LS_TRY(b->queue->crops(net->program, slot->crops, slot->pixels));
    return b->input(net->program, net->graph.label, slot->labels);
}

void ls_device_dataset_close(struct ls_device_dataset *s)
{
    if (s->held)
        s->backend->queue->give(s->held, s->held_bytes);
    *s = (struct ls_device_dataset){0};
}
