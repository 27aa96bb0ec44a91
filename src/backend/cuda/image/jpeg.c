/* Decoding JPEGs on the GPU, for --decode. nvJPEG decodes the whole image, a kernel crops and shrinks it, and only the result
 * is copied to the host. Each thread has a decoder with its own stream, and sleeps while the GPU works. */
#define _GNU_SOURCE
#include "backend/cuda/device.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/image/nvjpeg.h"
#include "base/decoder.h"
#include "base/log.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* Larger images would take too much of the card's memory from the training, once for each thread. */
#define MOST_PIXELS ((int64_t)1 << 25)
/* Buffers begin with this, and nvJPEG's own are multiples of it, so that they seldom grow: freeing its memory waits for the
 * whole card, which may wait for another process. */
#define LEAST_BYTES ((size_t)2 << 20)

/* Ways to decode, in the order of the library's handles. */
enum way { KERNELS, ENGINES, WAYS };

struct library {
    struct nvjpeg call;
    int device;
    void *handle[WAYS]; /* NULL: not opened yet */
};

/* --- the library ------------------------------------------------------------------------------------------------- */

static const char *option(enum way way)
{
    return way == ENGINES ? "--decode hardware" : "--decode gpu";
}

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static enum ls_status load_library(const char *asked, struct nvjpeg *n)
{
    static const char *const names[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return ls_fail(LS_FAILED,
                       "%s: %s was not found: install nvJPEG (a part of the CUDA toolkit), set LD_LIBRARY_PATH to its "
                       "folder, or leave --decode out",
                       asked, names[0]);
    if (find(library, "nvjpegCreateEx", &n->create) && find(library, "nvjpegSetDeviceMemoryPadding", &n->pad_device) &&
        find(library, "nvjpegSetPinnedMemoryPadding", &n->pad_pinned) &&
        find(library, "nvjpegJpegStateCreate", &n->open_state) &&
        find(library, "nvjpegJpegStateDestroy", &n->close_state) && find(library, "nvjpegGetImageInfo", &n->info) &&
        find(library, "nvjpegDecode", &n->decode))
        return LS_OK;
    return ls_fail(LS_FAILED, "%s: nvJPEG is too old: install that of CUDA 12 or later, or leave --decode out", asked);
}

static enum ls_status pick_device(const char *asked, int *device)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return ls_fail(
            LS_FAILED,
            "%s: no GPU can be used here (%s); see nvidia-smi, and CUDA_VISIBLE_DEVICES, or leave --decode out", asked,
            device_why(error));
    *device = device_rank() % count;
    return LS_OK;
}

static enum ls_status open_way(struct library *l, enum way way)
{
    static const int backend[] = {[KERNELS] = NVJPEG_HYBRID, [ENGINES] = NVJPEG_HARDWARE};
    void *handle = NULL;
    CUDA_TRY(cudaSetDevice(l->device));
    int status = l->call.create(backend[way], NULL, NULL, NVJPEG_STRICT | NVJPEG_INTERPOLATE, &handle);
    if (status != NVJPEG_SUCCESS && way == ENGINES)
        return ls_fail(
            LS_FAILED,
            "--decode hardware: nvJPEG finds no JPEG engine (status %d): the card has none, or its driver came "
            "without libnvcuvid.so.1; take --decode gpu",
            status);
    if (status != NVJPEG_SUCCESS)
        return ls_fail(LS_FAILED, "--decode gpu: nvJPEG cannot be opened (status %d); leave --decode out", status);
    l->call.pad_device(LEAST_BYTES, handle);
    l->call.pad_pinned(LEAST_BYTES, handle);
    l->handle[way] = handle;
    return LS_OK;
}

/* Loaded once, for as long as the process lives, like the card itself. */
static enum ls_status use_library(enum way way, const struct library **library)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct library shared;
    enum ls_status st = LS_OK;
    pthread_mutex_lock(&lock);
    if (!shared.handle[KERNELS]) {
        LS_TRY_GOTO(unlock, pick_device(option(way), &shared.device));
        LS_TRY_GOTO(unlock, load_library(option(way), &shared.call));
        LS_TRY_GOTO(unlock, open_way(&shared, KERNELS));
    }
    if (!shared.handle[way])
        LS_TRY_GOTO(unlock, open_way(&shared, way));
    *library = &shared;
unlock:
    pthread_mutex_unlock(&lock);
    return st;
}

/* --- one thread's decoder ---------------------------------------------------------------------------------------- */

struct room {
    uint8_t *memory; /* owned; on the card */
    size_t bytes;
};

struct decoder {
    struct ls_decoder base;
    const struct library *library; /* borrowed */
    void *state[WAYS];             /* owned; NULL: that way is not taken */
    cudaStream_t stream;
    cudaEvent_t end;
    struct room whole, part; /* the image, and what is wanted of it */
    uint8_t *pinned;         /* owned; the host's: LEAST_BYTES of the part on their way */
};

/* Also after a failure: what was enqueued may still read the caller's bytes. */
static cudaError_t settle(struct decoder *d)
{
    cudaError_t error = cudaEventRecord(d->end, d->stream);
    return error == cudaSuccess ? cudaEventSynchronize(d->end) : error;
}

/* Rooms grow by powers of two; what they held is lost. */
static cudaError_t take_room(struct decoder *d, struct room *r, size_t bytes)
{
    size_t larger = LEAST_BYTES;
    void *memory = NULL;
    if (bytes <= r->bytes)
        return cudaSuccess;
    while (larger < bytes)
        larger *= 2;
    if (r->memory)
        cudaFreeAsync(r->memory, d->stream);
    *r = (struct room){0};
    cudaError_t error = cudaMallocAsync(&memory, larger, d->stream);
    if (error != cudaSuccess)
        return error;
    *r = (struct room){memory, larger};
    return settle(d); /* nvJPEG may use it on streams of its own */
}

/* Nothing is given back to a card that is lost: that would wait for it. */
static void close_decoder(struct ls_decoder *base)
{
    struct decoder *d = (struct decoder *)base;
    if (device_is_lost())
        return;
    cudaSetDevice(d->library->device);
    for (int way = 0; way < WAYS; way++)
        if (d->state[way])
            d->library->call.close_state(d->state[way]);
    if (d->whole.memory)
        cudaFreeAsync(d->whole.memory, d->stream);
    if (d->part.memory)
        cudaFreeAsync(d->part.memory, d->stream);
    if (d->pinned)
        cudaFreeHost(d->pinned);
    if (d->end)
        cudaEventDestroy(d->end);
    if (d->stream)
        cudaStreamDestroy(d->stream);
    ls_free(d);
}

static bool fill_decoder(struct decoder *d, enum way way)
{
    const struct library *l = d->library;
    if (cudaSetDevice(l->device) != cudaSuccess ||
        cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaEventCreateWithFlags(&d->end, cudaEventBlockingSync | cudaEventDisableTiming) != cudaSuccess ||
        cudaHostAlloc((void **)&d->pinned, LEAST_BYTES, cudaHostAllocDefault) != cudaSuccess)
        return false;
    for (int w = 0; w <= (int)way; w++)
        if (l->call.open_state(l->handle[w], &d->state[w]) != NVJPEG_SUCCESS)
            return false;
    return true;
}

static enum ls_status open_decoder(enum way way, struct ls_decoder **decoder)
{
    const struct library *library;
    if (device_is_lost())
        return LS_FAILED;
    LS_TRY(use_library(way, &library));
    struct decoder *d = ls_alloc(1, sizeof *d);
    if (!d)
        return LS_FAILED;
    d->library = library;
    if (!fill_decoder(d, way)) {
        cudaGetLastError();
        close_decoder(&d->base);
        return LS_FAILED;
    }
    *decoder = &d->base;
    return LS_OK;
}

/* --- decoding ---------------------------------------------------------------------------------------------------- */

/* The library reads headers by itself: what it takes for the image must be what room was made for. */
static bool is_as_told(const struct library *l, const struct ls_decoder_job *job)
{
    int components = 0, subsampling, widths[NVJPEG_COMPONENTS] = {0}, heights[NVJPEG_COMPONENTS] = {0};
    return l->call.info(l->handle[KERNELS], job->bytes, job->size, &components, &subsampling, widths, heights) ==
               NVJPEG_SUCCESS &&
           components == job->channels && widths[0] == job->width && heights[0] == job->height;
}

static enum ls_decoded fail(struct decoder *d, const char *why)
{
    cudaGetLastError(); /* or the next call would be taken for the one that failed */
    d->base.why = why;
    return LS_DECODER_FAILED;
}

static bool is_of_the_file(int status)
{
    return status == NVJPEG_INVALID || status == NVJPEG_BAD || status == NVJPEG_UNSUPPORTED ||
           status == NVJPEG_UNSUITED || status == NVJPEG_UNIMPLEMENTED || status == NVJPEG_INCOMPLETE;
}

/* By the engines, where they are to be used and take the file, else by kernels. */
static enum ls_decoded enqueue_image(struct decoder *d, const struct ls_decoder_job *job, size_t pitch)
{
    const struct library *l = d->library;
    struct nvjpeg_image to = {.channel = {d->whole.memory}, .pitch = {pitch}};
    int format = job->channels == 1 ? NVJPEG_Y : NVJPEG_RGBI;
    for (int way = WAYS - 1; way >= 0; way--) {
        if (!d->state[way])
            continue;
        int status = l->call.decode(l->handle[way], d->state[way], job->bytes, job->size, format, &to, d->stream);
        if (status == NVJPEG_SUCCESS)
            return LS_DECODED;
        cudaGetLastError(); /* nor one that nvJPEG has left */
        if (!is_of_the_file(status))
            return fail(d, "nvJPEG's error: is the GPU's memory used up?");
    }
    return LS_DECODER_UNSUPPORTED;
}

static size_t part_bytes(const struct ls_decoder_job *job)
{
    return (size_t)job->rows * (size_t)job->columns * (size_t)job->channels;
}

/* What is wanted of the image, by way of the pinned memory. */
static cudaError_t bring_part(struct decoder *d, const struct ls_decoder_job *job, size_t pitch, uint8_t *pixels)
{
    size_t bytes = part_bytes(job), n;
    ls_cuda_shrink(d->stream, job, d->whole.memory, (int64_t)pitch, d->part.memory);
    cudaError_t error = cudaGetLastError();
    for (size_t at = 0; at < bytes && error == cudaSuccess; at += n) {
        n = bytes - at < LEAST_BYTES ? bytes - at : LEAST_BYTES;
        error = cudaMemcpyAsync(d->pinned, d->part.memory + at, n, cudaMemcpyDeviceToHost, d->stream);
        if (error == cudaSuccess)
            error = settle(d);
        if (error == cudaSuccess)
            memcpy(pixels + at, d->pinned, n);
    }
    return error;
}

static enum ls_decoded decode(struct ls_decoder *base, const struct ls_decoder_job *job, uint8_t *pixels)
{
    struct decoder *d = (struct decoder *)base;
    size_t pitch = ((size_t)job->width * (size_t)job->channels + 255) / 256 * 256;
    if (device_is_lost())
        return fail(d, "the card is lost");
    cudaError_t error = cudaSetDevice(d->library->device);
    if (error == cudaSuccess && ((int64_t)job->height * job->width > MOST_PIXELS || !is_as_told(d->library, job)))
        return LS_DECODER_UNSUPPORTED;
    if (error == cudaSuccess)
        error = take_room(d, &d->whole, pitch * (size_t)job->height);
    if (error == cudaSuccess)
        error = take_room(d, &d->part, part_bytes(job));
    if (error != cudaSuccess)
        return fail(d, cudaGetErrorString(error));
    enum ls_decoded how = enqueue_image(d, job, pitch);
    if (how == LS_DECODED)
        error = bring_part(d, job, pitch, pixels);
    cudaError_t end = settle(d);
    error = error == cudaSuccess ? end : error;
    return error == cudaSuccess ? how : fail(d, cudaGetErrorString(error));
}

/* --- the two decoders -------------------------------------------------------------------------------------------- */

static enum ls_status check_kernels(void)
{
    const struct library *library;
    return use_library(KERNELS, &library);
}

static enum ls_status check_engines(void)
{
    const struct library *library;
    return use_library(ENGINES, &library);
}

static enum ls_status open_kernels(struct ls_decoder **decoder)
{
    return open_decoder(KERNELS, decoder);
}

static enum ls_status open_engines(struct ls_decoder **decoder)
{
    return open_decoder(ENGINES, decoder);
}

__attribute__((visibility("default"))) const struct ls_decoder_ops ls_cuda_jpeg = {
    .check = check_kernels,
    .open = open_kernels,
    .close = close_decoder,
    .decode = decode,
};

__attribute__((visibility("default"))) const struct ls_decoder_ops ls_cuda_jpeg_engines = {
    .check = check_engines,
    .open = open_engines,
    .close = close_decoder,
    .decode = decode,
};
