/* The queue of the backend (struct ls_backend_queue): memory, copies and results. */
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
    if (device_is_lost())
        return;
    if (cudaDeviceSynchronize() != cudaSuccess || cudaHostUnregister(host) != cudaSuccess)
        cudaGetLastError();
}

static size_t left(void)
{
    struct device *d;
    size_t bytes = 0, total;
    return device_open(&d) == LS_OK && cudaMemGetInfo(&bytes, &total) == cudaSuccess ? bytes : 0;
}

static enum ls_status copy(struct ls_program *p, float *to, const float *from, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(cudaMemcpyAsync(to, from, count * sizeof *to, cudaMemcpyDeviceToDevice, p->device->compute));
    timeline_end_copy(p, mark, "copy gradients", count * sizeof *to);
    return LS_OK;
}

static enum ls_status add(struct ls_program *p, float *to, const float *other, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    ls_cuda_sum(p->device->compute, other, to, (int64_t)count);
    timeline_end_copy(p, mark, "add gradients", count * sizeof *to);
    return cuda_check(cudaGetLastError(), "adding gradients");
}

static enum ls_status clear(struct ls_program *p, float *to, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(cudaMemsetAsync(to, 0, count * sizeof *to, p->device->compute));
    timeline_end_copy(p, mark, "clear gradients", count * sizeof *to);
    return LS_OK;
}

static enum ls_status columns(struct ls_program *p, void *to, size_t to_step, const void *from, size_t from_step,
                              size_t bytes, size_t rows)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(
        cudaMemcpy2DAsync(to, to_step, from, from_step, bytes, rows, cudaMemcpyDeviceToDevice, p->device->compute));
    timeline_end_copy(p, mark, "copy columns", bytes * rows);
    return LS_OK;
}

static enum ls_status fetch(struct ls_program *p, int mark, float *host, const float *from, size_t count)
{
    if (!p->marks[mark])
        CUDA_TRY(cudaEventCreateWithFlags(&p->marks[mark], cudaEventDisableTiming));
    if (count == 0) {
        CUDA_TRY(cudaEventRecord(p->marks[mark], p->device->compute));
        return LS_OK;
    }
    CUDA_TRY(cudaEventRecord(p->here, p->device->compute));
    CUDA_TRY(cudaStreamWaitEvent(p->device->copies, p->here, 0));
    struct mark *copied = timeline_begin(p, p->device->copies);
    CUDA_TRY(cudaMemcpyAsync(host, from, count * sizeof *host, cudaMemcpyDeviceToHost, p->device->copies));
    timeline_end_copy(p, copied, "gradients to the host", count * sizeof *host);
    CUDA_TRY(cudaEventRecord(p->marks[mark], p->device->copies));
    return LS_OK;
}

static enum ls_status arrived(struct ls_program *p, int mark)
{
    return p->marks[mark] ? program_await(p, p->marks[mark]) : LS_OK;
}

static enum ls_status send(struct ls_program *p, float *to, const float *host, size_t count)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    CUDA_TRY(cudaMemcpyAsync(to, host, count * sizeof *to, cudaMemcpyHostToDevice, p->device->compute));
    timeline_end_copy(p, mark, "values from the host", count * sizeof *to);
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
    timeline_end_copy(p, mark, "results", n * (sizeof(float) + sizeof(int32_t)));
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

/* --- data sets and checksums -------------------------------------------------------------------------------------- */

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

static enum ls_status checksum(struct ls_program *p, bool optimizer, uint64_t *sum)
{
    CUDA_TRY(cudaMemsetAsync(p->checksum, 0, sizeof *sum, p->device->compute));
    ls_cuda_checksum(p->device->compute, p->updates, p->host_updates, p->core.g->n_nodes, optimizer, p->checksum);
    CUDA_TRY(cudaEventRecord(p->here, p->device->compute));
    LS_TRY(program_await(p, p->here));
    CUDA_TRY(cudaMemcpy(sum, p->checksum, sizeof *sum, cudaMemcpyDeviceToHost));
    return LS_OK;
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
    .source = program_source,
    .crops = program_input_crops,
    .checksum = checksum,
    .get_scale = program_get_scale,
    .set_scale = program_set_scale,
    .trace = timeline_open,
    .trace_end = timeline_close,
};

/* --- opened and closed ------------------------------------------------------------------------------------------ */

enum ls_status program_open_queue(struct ls_program *p)
{
    const struct ls_graph *g = p->core.g;
    LS_TRY(device_take(sizeof *p->run, "a pass", (void **)&p->run));
    LS_TRY(device_take(sizeof *p->checksum, "a checksum", (void **)&p->checksum));
    CUDA_TRY(cudaEventCreateWithFlags(&p->here, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&p->fork, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&p->joined, cudaEventDisableTiming));
    LS_TRY(program_open_input(p));
    for (int s = 0; s < SLOTS; s++) {
        CUDA_TRY(cudaEventCreateWithFlags(&p->asked[s], cudaEventDisableTiming));
        if (g->loss == LS_NONE)
            continue;
        size_t n = (size_t)g->tensors[g->loss].shape.dim[0];
        CUDA_TRY(cudaMallocHost((void **)&p->loss[s], n * sizeof(float)));
        CUDA_TRY(cudaMallocHost((void **)&p->rank[s], n * sizeof(int32_t)));
    }
    return LS_OK;
}

void program_close_queue(struct ls_program *p)
{
    if (!p->device || p->device->lost)
        return;
    for (int s = 0; s < SLOTS; s++) {
        cudaFreeHost(p->loss[s]);
        cudaFreeHost(p->rank[s]);
        if (p->asked[s])
            cudaEventDestroy(p->asked[s]);
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
    program_close_input(p);
}
