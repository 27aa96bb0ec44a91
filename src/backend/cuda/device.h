/* The GPU of this process and the handles of its libraries. They are opened on first use and stay open until the process
 * ends. One stream computes, a second copies, a third runs nodes aside (CUDA-5). */
#ifndef LS_BACKEND_CUDA_DEVICE_H
#define LS_BACKEND_CUDA_DEVICE_H

#include "backend/backend.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdatomic.h>

enum { DEVICE_BUILDERS = 8 };

/* While enqueued work may wait for other processes: checked again and again by a process that waits for its GPU. */
struct device_watch {
    enum ls_status (*check)(void *context, double seconds); /* as check_wait of struct ls_peers_group */
    void *context;
    const char *(*trouble)(const void *of); /* an error that a library reported, or NULL. May be NULL itself */
    const void *of;
};

struct device {
    int number;
    char name[96]; /* "NVIDIA H200" */
    int major, minor, multiprocessors;
    cudaStream_t compute, copies, aside;
    cudnnHandle_t cudnn, builders[DEVICE_BUILDERS]; /* builders: of threads that build plans, made on first use */
    cublasLtHandle_t blas;
    const struct device_watch *watch; /* borrowed; NULL: no work waits for other processes */
    struct timeline *timeline;        /* owned; NULL: nothing is recorded (timeline.h) */
    /* Enqueued work may wait for a lost process for ever: do not wait for the GPU any more, and free nothing on it. */
    atomic_bool lost;
};

/* local_rank.c: the number of this process among those of this machine; it takes the GPU of that number, modulo their count. */
int device_rank(void);
/* Why no GPU was found, in words. */
const char *device_why(cudaError_t error);
/* Opens the GPU. The error says what is missing and what to do. */
enum ls_status device_open(struct device **device);
/* From any thread, before device_open as well. */
bool device_is_lost(void);

/* Swap the compute stream and the stream aside. */
enum ls_status device_turn(struct device *d);

/* Zeroed device memory; `what` stands in the error message. give frees it, and takes NULL. leave: other processes use the
 * memory, so it stays until this process ends. */
enum ls_status device_take(size_t bytes, const char *what, void **memory);
void device_give(void *memory);
void device_leave(void *memory);
/* Copy host memory to the device, behind what is enqueued on the compute stream. Returns when the copy is done. */
enum ls_status device_put(void *to, const void *host, size_t bytes);
/* Bytes in use now, and the peak. */
void device_taken(size_t *now, size_t *most);

/* Convert errors of the three libraries; `what` says what was being done. */
enum ls_status cuda_check(cudaError_t error, const char *what);
enum ls_status cudnn_check(cudnnStatus_t error, const char *what);
enum ls_status blas_check(cublasStatus_t error, const char *what);
#define CUDA_TRY(call) LS_TRY(cuda_check((call), #call))

extern const struct ls_backend_queue ls_cuda_queue;
extern const struct ls_backend_peers ls_cuda_peers;
void ls_cuda_about(struct ls_backend_about *about);
int ls_cuda_cards(struct ls_backend_card *list, int room, char *why, size_t room_why);

#endif
