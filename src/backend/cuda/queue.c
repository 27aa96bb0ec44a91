/* Work that is enqueued beside the nodes: input, results, and copies of gradients. */
#include "backend/core/store.h"
#include "backend/cuda/kernels/given.h"
#include "backend/cuda/program.h"
#include "backend/cuda/timeline.h"
#include "base/log.h"

#include <string.h>

static enum ls_status take(size_t bytes, void **memory)
{
    return device_take(bytes, "activations, parameters or gradients", memory);
}

static void give(void *memory, size_t bytes)
{
    (void)bytes;
    device_give(memory);
}

static void pin(void *host, size_t bytes)
{
    if (cudaHostRegister(host, bytes, cudaHostRegisterDefault) != cudaSuccess)
        cudaGetLastError(); /* copies are slower without it */
}

static void unpin(void *host)
{
    if (!device_is_lost() && cudaHostUnregister(host) != cudaSuccess)
        cudaGetLastError();
}

static size_t left(void)
{
    struct device *d;
    size_t bytes = 0, total;
    return device_open(&d) == LS_OK && cudaMemGetInfo(&bytes, &total) == cudaSuccess ? bytes : 0;
}

static void end_copy(struct ls_program *p, struct mark *mark, const char *name, size_t bytes)
{
    timeline_end(p, mark, &(struct ls_slice){.kind = LS_SLICE_COPY, .name = name, .number = -1, .bytes = bytes});
}

static enum ls_status copy(struct ls_program *p, float *to, const float *from, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(cudaMemcpyAsync(to, from, count * sizeof *to, cudaMemcpyDeviceToDevice, p->device->compute));
    end_copy(p, mark, "copy gradients", count * sizeof *to);
    return LS_OK;
}

static enum ls_status add(struct ls_program *p, float *to, const float *other, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    ls_cuda_sum(p->device->compute, other, to, (int64_t)count);
    end_copy(p, mark, "add gradients", count * sizeof *to);
    return cuda_check(cudaGetLastError(), "adding gradients");
}

static enum ls_status clear(struct ls_program *p, float *to, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(cudaMemsetAsync(to, 0, count * sizeof *to, p->device->compute));
    end_copy(p, mark, "clear gradients", count * sizeof *to);
    return LS_OK;
}

static enum ls_status columns(struct ls_program *p, void *to, size_t to_step, const void *from, size_t from_step,
                              size_t bytes, size_t rows)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(
        cudaMemcpy2DAsync(to, to_step, from, from_step, bytes, rows, cudaMemcpyDeviceToDevice, p->device->compute));
    end_copy(p, mark, "copy columns", bytes * rows);
    return LS_OK;
}

static enum ls_status fetch(struct ls_program *p, int mark, float *host, const float *from, size_t count)
{
    CUDA_TRY(cudaEventRecord(p->here, p->device->compute));
    CUDA_TRY(cudaStreamWaitEvent(p->device->copies, p->here, 0));
    struct mark *copied = timeline_begin(p, p->device->copies);
    CUDA_TRY(cudaMemcpyAsync(host, from, count * sizeof *host, cudaMemcpyDeviceToHost, p->device->copies));
    end_copy(p, copied, "gradients to the host", count * sizeof *host);
    if (!p->marks[mark])
        CUDA_TRY(cudaEventCreateWithFlags(&p->marks[mark], cudaEventDisableTiming));
    CUDA_TRY(cudaEventRecord(p->marks[mark], p->device->copies));
    return LS_OK;
}

static enum ls_status arrived(struct ls_program *p, int mark)
{
    if (p->marks[mark])
        CUDA_TRY(cudaEventSynchronize(p->marks[mark]));
    return LS_OK;
}

static enum ls_status send(struct ls_program *p, float *to, const float *host, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(cudaMemcpyAsync(to, host, count * sizeof *to, cudaMemcpyHostToDevice, p->device->compute));
    end_copy(p, mark, "values from the host", count * sizeof *to);
    return LS_OK;
}

/* Renews the copies of values. Behind these is padding, of which there are none. */
static enum ls_status renew_copies(const struct ls_program *p, int tensor, size_t first, size_t count)
{
    const struct tensor_layout *l = &p->layouts[tensor];
    size_t all = (size_t)l->layout.count, copied = first >= all ? 0 : first + count > all ? all - first : count;
    if (l->half && copied > 0)
        ls_cuda_convert(p->device->compute, LS_F32, floats(p, tensor) + first, p->core.g->act_dtype,
                        l->half + first * 2, (int64_t)copied);
    return cuda_check(cudaGetLastError(), "copies of values");
}

static enum ls_status send_values(struct ls_program *p, int tensor, const float *host, size_t first, size_t count)
{
    LS_TRY(send(p, floats(p, tensor) + first, host, count));
    return renew_copies(p, tensor, first, count);
}

static enum ls_status copy_values(struct ls_program *p, int tensor, const float *from, size_t first, size_t count)
{
    LS_TRY(copy(p, floats(p, tensor) + first, from, count));
    return renew_copies(p, tensor, first, count);
}

/* Another process may have it mapped when this one ends, so that it is never freed. */
static bool lend(void *memory, char ticket[LS_TICKET_ROOM])
{
    cudaIpcMemHandle_t handle;
    _Static_assert(sizeof handle <= LS_TICKET_ROOM, "a handle is a ticket");
    if (cudaIpcGetMemHandle(&handle, memory) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    device_leave(memory);
    memcpy(ticket, &handle, sizeof handle);
    return true;
}

static void *map(const char ticket[LS_TICKET_ROOM])
{
    cudaIpcMemHandle_t handle;
    void *memory;
    memcpy(&handle, ticket, sizeof handle);
    if (cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess)
        return memory;
    cudaGetLastError();
    return NULL;
}

static void unmap(void *memory)
{
    if (!device_is_lost() && cudaIpcCloseMemHandle(memory) != cudaSuccess)
        cudaGetLastError();
}

static enum ls_status ask(struct ls_program *p, int slot)
{
    const struct ls_graph *g = p->core.g;
    size_t n = (size_t)g->tensors[g->loss].shape.dim[0];
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(cudaMemcpyAsync(p->loss[slot], p->core.places[g->loss].data, n * sizeof(float), cudaMemcpyDeviceToHost,
                             p->device->compute));
    CUDA_TRY(cudaMemcpyAsync(p->rank[slot], p->core.places[g->label_rank].data, n * sizeof(int32_t),
                             cudaMemcpyDeviceToHost, p->device->compute));
    end_copy(p, mark, "results", n * (sizeof(float) + sizeof(int32_t)));
    CUDA_TRY(cudaEventRecord(p->asked[slot], p->device->compute));
    return LS_OK;
}

static enum ls_status results(struct ls_program *p, int slot, const float **loss, const int32_t **rank)
{
    LS_TRY(program_await(p, p->asked[slot]));
    *loss = p->loss[slot];
    *rank = p->rank[slot];
    return LS_OK;
}

/* --- images ----------------------------------------------------------------------------------------------------- */

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

enum ls_status program_input_planes(struct ls_program *p, const void *planes)
{
    if (p->pixels)
        return ls_fail(LS_FAILED, "planes came where bytes were expected");
    p->images = planes;
    return LS_OK;
}

static enum ls_status hold(size_t bytes, void **memory)
{
    struct device *d;
    size_t bytes_left = 0, total = 0;
    *memory = NULL;
    LS_TRY(device_open(&d));
    CUDA_TRY(cudaMemGetInfo(&bytes_left, &total));
    return bytes > bytes_left / 4 ? LS_OK : device_take(bytes, "the data set", memory);
}

static enum ls_status put(void *to, const void *host, size_t bytes)
{
    return device_put(to, host, bytes);
}

static enum ls_status source(struct ls_program *p, const struct ls_pixels *pixels, const void *held)
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

static enum ls_status crops(struct ls_program *p, const struct ls_crop *list, const uint8_t *bytes)
{
    p->crops = list;
    p->images = bytes;
    return LS_OK;
}

static enum ls_status checksum(struct ls_program *p, bool optimizer, uint64_t *sum)
{
    CUDA_TRY(cudaMemsetAsync(p->checksum, 0, sizeof *sum, p->device->compute));
    ls_cuda_checksum(p->device->compute, p->updates, p->host_updates, p->core.g->n_nodes, optimizer, p->checksum);
    CUDA_TRY(cudaEventRecord(p->here, p->device->compute));
    LS_TRY(program_await(p, p->here));
    CUDA_TRY(cudaMemcpy(sum, p->checksum, sizeof *sum, cudaMemcpyDeviceToHost));
    return LS_OK;
}

/* The step that began last is over: adjust the scale. */
static void end_scaled_step(struct ls_program *p)
{
    enum { GROWTH = 2000 };
    if (*p->scaled_step != UINT64_MAX)
        ls_cuda_scale_end(p->device->compute, p->scale, p->core.options.loss_scale > 0 ? 0 : GROWTH);
    *p->scaled_step = UINT64_MAX;
}

static enum ls_status get_scale(struct ls_program *p, struct ls_loss_scale *scale)
{
    struct ls_cuda_scale now;
    *scale = (struct ls_loss_scale){0};
    if (!p->scale)
        return LS_OK;
    end_scaled_step(p);
    CUDA_TRY(cudaEventRecord(p->here, p->device->compute));
    LS_TRY(program_await(p, p->here));
    CUDA_TRY(cudaMemcpy(&now, p->scale, sizeof now, cudaMemcpyDeviceToHost));
    *scale = (struct ls_loss_scale){p->core.options.loss_scale > 0 ? 0 : now.scale, now.good, now.skipped};
    return LS_OK;
}

static enum ls_status set_scale(struct ls_program *p, const struct ls_loss_scale *scale)
{
    const struct ls_cuda_scale start = {.scale = scale->scale, .good = scale->steady};
    if (!p->scale || p->core.options.loss_scale > 0)
        return LS_OK;
    *p->scaled_step = UINT64_MAX;
    return device_put(p->scale, &start, sizeof start);
}

const struct ls_backend_queue ls_cuda_queue = {
    .delay = 1,
    .own_memory = true,
    .take = take,
    .give = give,
    .taken = device_taken,
    .left = left,
    .pin = pin,
    .unpin = unpin,
    .copy = copy,
    .add = add,
    .clear = clear,
    .columns = columns,
    .fetch = fetch,
    .arrived = arrived,
    .send = send,
    .send_values = send_values,
    .copy_values = copy_values,
    .lend = lend,
    .map = map,
    .unmap = unmap,
    .ask = ask,
    .results = results,
    .hold = hold,
    .put = put,
    .source = source,
    .crops = crops,
    .checksum = checksum,
    .get_scale = get_scale,
    .set_scale = set_scale,
    .trace = timeline_open,
    .trace_end = timeline_close,
};

/* --- the pass in flight ----------------------------------------------------------------------------------------- */

enum ls_status program_open_queue(struct ls_program *p)
{
    const struct ls_graph *g = p->core.g;
    p->crop_offset = (label_bytes(g) + 255) / 256 * 256;
    LS_TRY(device_take(sizeof *p->run, "a pass", (void **)&p->run));
    LS_TRY(device_take(sizeof *p->checksum, "a checksum", (void **)&p->checksum));
    CUDA_TRY(cudaEventCreateWithFlags(&p->here, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&p->fork, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&p->joined, cudaEventDisableTiming));
    for (int s = 0; s < SLOTS; s++) {
        LS_TRY(device_take(p->crop_offset + crop_bytes(g), "labels", (void **)&p->notes[s]));
        CUDA_TRY(cudaEventCreateWithFlags(&p->fed[s], cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&p->used[s], cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&p->asked[s], cudaEventDisableTiming));
        if (g->loss == LS_NONE)
            continue;
        size_t n = (size_t)g->tensors[g->loss].shape.dim[0];
        CUDA_TRY(cudaMallocHost((void **)&p->loss[s], n * sizeof(float)));
        CUDA_TRY(cudaMallocHost((void **)&p->rank[s], n * sizeof(int32_t)));
    }
    return LS_OK;
}

/* The lanes of a pipeline are programs that run passes of one step. */
enum ls_status program_open_scale(struct ls_program *p)
{
    static const char name[] = "\tloss scale"; /* no tensor's */
    struct ls_store_entry *entry = ls_store_find(p->core.store, name);
    float fixed = p->core.options.loss_scale;
    const struct ls_cuda_scale start = {.scale = fixed > 0 ? fixed : 65536};
    if (p->core.g->act_dtype != LS_F16 || !p->core.g->training)
        return LS_OK;
    if (!entry) {
        LS_TRY(ls_store_add(p->core.store, name, sizeof *p->scale, &entry));
        LS_TRY(device_put(entry->memory, &start, sizeof start));
        *(uint64_t *)(void *)entry->layout = UINT64_MAX;
    }
    p->scale = entry->memory;
    p->scaled_step = (uint64_t *)(void *)entry->layout;
    return LS_OK;
}

void program_close_queue(struct ls_program *p)
{
    if (!p->device || p->device->lost)
        return;
    for (int s = 0; s < SLOTS; s++) {
        device_give(p->input[s]);
        device_give(p->notes[s]);
        cudaFreeHost(p->loss[s]);
        cudaFreeHost(p->rank[s]);
        cudaEvent_t events[] = {p->fed[s], p->used[s], p->asked[s]};
        for (int i = 0; i < 3; i++)
            if (events[i])
                cudaEventDestroy(events[i]);
    }
    for (int i = 0; i < LS_QUEUE_MARKS; i++)
        if (p->marks[i])
            cudaEventDestroy(p->marks[i]);
    cudaEvent_t events[] = {p->here, p->fork, p->joined};
    for (int i = 0; i < 3; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    device_give(p->run);
    device_give(p->checksum);
    device_give(p->pixels);
}

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
    end_copy(p, mark, "input", bytes);
    CUDA_TRY(cudaEventRecord(p->fed[p->slot], copies));
    CUDA_TRY(cudaStreamWaitEvent(p->device->compute, p->fed[p->slot], 0));
    return LS_OK;
}

/* f16: the scale changes only between steps, so that all passes of a step have the same one. A step begins with its first
 * range of nodes; that is the updates where this process has no samples. */
static void settle_scale(struct ls_program *p, uint64_t step)
{
    if (!p->scale || step == *p->scaled_step)
        return;
    end_scaled_step(p);
    ls_cuda_scale_begin(p->device->compute, p->scale);
    *p->scaled_step = step;
}

enum ls_status program_feed(struct ls_program *p, const struct ls_run *run, bool input)
{
    if (input)
        LS_TRY(feed_batch(p));
    if (!run->forward_only)
        settle_scale(p, run->step);
    if (p->scale && run->overflow)
        ls_cuda_scale_overflow(p->device->compute, p->scale);
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
