/* What a pass reads: images, labels and crops of its batch, and the values of struct ls_run. */
#include "backend/cuda/kernels/given.h"
#include "backend/cuda/program.h"
#include "backend/cuda/timeline.h"
#include "base/log.h"

static size_t plane_bytes(const struct ls_graph *g)
{
    return g->input == LS_NONE ? 0 : (size_t)ls_shape_count(&g->tensors[g->input].shape) * sizeof(float);
}

static size_t label_bytes(const struct ls_graph *g)
{
    return g->label == LS_NONE ? 0 : (size_t)ls_shape_count(&g->tensors[g->label].shape) * sizeof(int32_t);
}

static size_t crop_bytes(const struct ls_graph *g)
{
    return g->input == LS_NONE ? 0 : (size_t)g->tensors[g->input].shape.dim[0] * sizeof(struct ls_crop);
}

enum ls_status program_open_input(struct ls_program *p)
{
    p->crop_offset = (label_bytes(p->core.g) + 255) / 256 * 256;
    for (int s = 0; s < SLOTS; s++) {
        LS_TRY(device_take(p->crop_offset + crop_bytes(p->core.g), "labels", (void **)&p->notes[s]));
        CUDA_TRY(cudaEventCreateWithFlags(&p->fed[s], cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&p->used[s], cudaEventDisableTiming));
    }
    return LS_OK;
}

void program_close_input(struct ls_program *p)
{
    for (int s = 0; s < SLOTS; s++) {
        device_give(p->input[s]);
        device_give(p->notes[s]);
        if (p->fed[s])
            cudaEventDestroy(p->fed[s]);
        if (p->used[s])
            cudaEventDestroy(p->used[s]);
    }
    device_give(p->pixels);
}

static enum ls_status take_room(struct ls_program *p, size_t bytes)
{
    if (bytes <= p->input_room)
        return LS_OK;
    CUDA_TRY(cudaStreamSynchronize(p->device->copies));
    CUDA_TRY(cudaStreamSynchronize(p->device->compute));
    p->input_room = 0;
    for (int s = 0; s < SLOTS; s++) {
        device_give(p->input[s]);
        p->input[s] = NULL;
        LS_TRY(device_take(bytes, "images", (void **)&p->input[s]));
    }
    p->input_room = bytes;
    return LS_OK;
}

/* --- the form of the images ---------------------------------------------------------------------------------------- */

enum ls_status program_input_planes(struct ls_program *p, const void *planes)
{
    if (p->pixels)
        return ls_fail(LS_FAILED, "planes came where bytes were expected");
    p->images = planes;
    return LS_OK;
}

enum ls_status program_source(struct ls_program *p, const struct ls_pixels *pixels, const void *held)
{
    program_forget(p);
    p->images = p->crops = NULL;
    p->held = held;
    if (!pixels) {
        device_give(p->pixels);
        p->pixels = NULL;
        return LS_OK;
    }
    if (!p->pixels)
        LS_TRY(device_take(sizeof *p->pixels, "images", (void **)&p->pixels));
    p->pixel_channels = pixels->from_channels;
    p->pixel_bytes = (size_t)(p->core.g->tensors[p->core.g->input].shape.dim[0] * ls_pixels_bytes(pixels));
    LS_TRY(device_put(p->pixels, pixels, sizeof *pixels));
    return held ? LS_OK : take_room(p, p->pixel_bytes);
}

enum ls_status program_input_crops(struct ls_program *p, const struct ls_crop *list, const uint8_t *bytes)
{
    p->crops = list;
    p->images = bytes;
    return LS_OK;
}

/* --- a pass -------------------------------------------------------------------------------------------------------- */

/* The copy stream copies the batch while the pass before computes, into the slot of the pass before that. */
static enum ls_status feed_batch(struct ls_program *p)
{
    cudaStream_t copies = p->device->copies;
    if (!p->pixels)
        LS_TRY(take_room(p, plane_bytes(p->core.g)));
    p->slot = (p->slot + 1) % SLOTS;
    CUDA_TRY(cudaStreamWaitEvent(copies, p->used[p->slot], 0));
    size_t bytes = !p->images ? 0 : p->pixels ? p->pixel_bytes : plane_bytes(p->core.g);
    struct mark *mark = timeline_begin(p, copies);
    if (p->images)
        CUDA_TRY(cudaMemcpyAsync(p->input[p->slot], p->images, bytes, cudaMemcpyHostToDevice, copies));
    if (p->labels)
        CUDA_TRY(cudaMemcpyAsync(p->notes[p->slot], p->labels, label_bytes(p->core.g), cudaMemcpyHostToDevice, copies));
    if (p->crops)
        CUDA_TRY(cudaMemcpyAsync(p->notes[p->slot] + p->crop_offset, p->crops, crop_bytes(p->core.g),
                                 cudaMemcpyHostToDevice, copies));
    bytes += (p->labels ? label_bytes(p->core.g) : 0) + (p->crops ? crop_bytes(p->core.g) : 0);
    timeline_end_copy(p, mark, "input", bytes);
    CUDA_TRY(cudaEventRecord(p->fed[p->slot], copies));
    CUDA_TRY(cudaStreamWaitEvent(p->device->compute, p->fed[p->slot], 0));
    return LS_OK;
}

enum ls_status program_feed(struct ls_program *p, const struct ls_run *run, bool input)
{
    if (input)
        LS_TRY(feed_batch(p));
    program_settle_scale(p, run);
    if (p->clip && run->squares)
        ls_cuda_clip_give(p->device->compute, *run->squares, p->clip);
    struct ls_cuda_run now = {
        .seed = run->seed,
        .step = run->step,
        .replica = run->replica,
        .grad_scale = run->grad_scale,
        .stat_weight = run->stat_weight,
        .lr = run->lr,
        .valid = run->valid,
        .images = p->held ? p->held : p->input[p->slot],
        .crops = (const struct ls_crop *)(const void *)(p->notes[p->slot] + p->crop_offset),
        .labels = (const int32_t *)(const void *)p->notes[p->slot],
    };
    ls_cuda_set_run(p->device->compute, p->run, &now);
    return LS_OK;
}

void program_fed(struct ls_program *p)
{
    cudaEventRecord(p->used[p->slot], p->device->compute);
}
