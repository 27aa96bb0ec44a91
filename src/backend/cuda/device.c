#define _GNU_SOURCE
#include "backend/cuda/device.h"
#include "base/log.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum ls_status cuda_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return LS_OK;
    if (error == cudaErrorMemoryAllocation)
        return ls_fail(LS_FAILED, "the GPU's memory is used up (%s): take a smaller --batch, or --accumulate", what);
    return ls_fail(LS_FAILED, "CUDA: %.120s: %s", what, cudaGetErrorString(error));
}

enum ls_status cudnn_check(cudnnStatus_t error, const char *what)
{
    char why[256] = "";
    if (error == CUDNN_STATUS_SUCCESS)
        return LS_OK;
    cudnnGetLastErrorString(why, sizeof why);
    return ls_fail(LS_FAILED, "cuDNN: %.120s: %s%s%s", what, cudnnGetErrorString(error), *why ? ": " : "", why);
}

enum ls_status blas_check(cublasStatus_t error, const char *what)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return LS_OK;
    return ls_fail(LS_FAILED, "cuBLASLt: %.120s: %s", what, cublasLtGetStatusString(error));
}

static enum ls_status pick_card(struct device *d)
{
    int count = 0;
    struct cudaDeviceProp prop;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return ls_fail(
            LS_FAILED,
            "--backend cuda: no GPU can be used here (%s); see nvidia-smi, and CUDA_VISIBLE_DEVICES, or take "
            "--backend onednn",
            device_why(error));
    d->number = device_rank() % count;
    CUDA_TRY(cudaSetDevice(d->number));
    CUDA_TRY(cudaGetDeviceProperties(&prop, d->number));
    if (prop.major < 8)
        return ls_fail(LS_FAILED, "--backend cuda: %s is of compute capability %d.%d; Ampere (8.0) or later is needed",
                       prop.name, prop.major, prop.minor);
    snprintf(d->name, sizeof d->name, "%.90s", prop.name);
    d->name[strcspn(d->name, "|\n")] = 0;
    d->major = prop.major;
    d->minor = prop.minor;
    d->multiprocessors = prop.multiProcessorCount;
    return LS_OK;
}

static enum ls_status open_card(struct device *d)
{
    LS_TRY(pick_card(d));
    CUDA_TRY(cudaStreamCreateWithFlags(&d->compute, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&d->copies, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&d->aside, cudaStreamNonBlocking));
    LS_TRY(cudnn_check(cudnnCreate(&d->cudnn), "cudnnCreate"));
    LS_TRY(cudnn_check(cudnnSetStream(d->cudnn, d->compute), "cudnnSetStream"));
    return blas_check(cublasLtCreate(&d->blas), "cublasLtCreate");
}

/* The card stays with the process: the driver allows no less, and programs share it. */
static struct device card;

enum ls_status device_open(struct device **device)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool open;
    pthread_mutex_lock(&lock);
    enum ls_status st = open ? LS_OK : open_card(&card);
    open = open || st == LS_OK;
    pthread_mutex_unlock(&lock);
    *device = &card;
    return st;
}

bool device_is_lost(void)
{
    return card.lost;
}

enum ls_status device_turn(struct device *d)
{
    cudaStream_t compute = d->aside;
    d->aside = d->compute;
    d->compute = compute;
    return cudnn_check(cudnnSetStream(d->cudnn, compute), "cudnnSetStream");
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

struct taken {
    struct taken *next;
    void *memory;
    size_t bytes;
};

/* What this process holds of the card. */
static struct {
    pthread_mutex_t lock;
    struct taken *list;
    size_t now, most;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum ls_status device_take(size_t bytes, const char *what, void **memory)
{
    struct device *d;
    *memory = NULL;
    LS_TRY(device_open(&d));
    struct taken *t = ls_alloc(1, sizeof *t);
    if (!t)
        return LS_FAILED;
    cudaError_t error = cudaMalloc(memory, bytes ? bytes : 1);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(*memory, 0, bytes, d->compute);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(d->compute); /* other streams may be the first to use it */
    if (error != cudaSuccess)
        ls_free(t);
    if (error == cudaErrorMemoryAllocation) {
        size_t left = 0, total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&left, &total);
        return ls_fail(LS_FAILED,
                       "%s has %.1f GiB of memory left of %.1f, and %.1f are needed for %s: take a smaller --batch, or "
                       "--accumulate",
                       d->name, (double)left / 0x1p30, (double)total / 0x1p30, (double)bytes / 0x1p30, what);
    }
    LS_TRY(cuda_check(error, what));
    pthread_mutex_lock(&held.lock);
    *t = (struct taken){held.list, *memory, bytes};
    held.list = t;
    held.now += bytes;
    held.most = held.now > held.most ? held.now : held.most;
    pthread_mutex_unlock(&held.lock);
    return LS_OK;
}

/* Off the list; false: it is not on it. */
static bool strike(void *memory)
{
    struct taken *found = NULL;
    pthread_mutex_lock(&held.lock);
    for (struct taken **t = &held.list; *t && !found; t = &(*t)->next)
        if ((*t)->memory == memory) {
            found = *t;
            *t = found->next;
            held.now -= found->bytes;
            break;
        }
    pthread_mutex_unlock(&held.lock);
    ls_free(found);
    return found != NULL;
}

void device_give(void *memory)
{
    if (memory && strike(memory) && !device_is_lost())
        cudaFree(memory);
}

void device_leave(void *memory)
{
    strike(memory);
}

enum ls_status device_put(void *to, const void *host, size_t bytes)
{
    struct device *d;
    LS_TRY(device_open(&d));
    CUDA_TRY(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, d->compute));
    CUDA_TRY(cudaStreamSynchronize(d->compute));
    return LS_OK;
}

void device_taken(size_t *now, size_t *most)
{
    pthread_mutex_lock(&held.lock);
    *now = held.now;
    *most = held.most;
    pthread_mutex_unlock(&held.lock);
}
