/* The card this process computes on, and its libraries' handles: opened once, on first use, for as long as the process
 * lives. One compute stream carries a step; a second one carries copies beside it, a third what of the step need not
 * stand in its line. */
#ifndef LS_BACKEND_CUDA_DEVICE_H
#define LS_BACKEND_CUDA_DEVICE_H

#include "backend/backend.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdatomic.h>

struct device {
    int number;
    char name[96]; /* "NVIDIA H200" */
    int major, minor, multiprocessors;
    cudaStream_t compute, copies, aside;
    cudnnHandle_t cudnn;
    cublasLtHandle_t blas;
    /* What is enqueued may never end: nothing waits for the card any more, and nothing on it is freed. */
    atomic_bool lost;
};

/* A process of several on this machine takes the card of its number among them, modulo their number. */
int device_rank(void);
/* Why no card was counted, in words. */
const char *device_why(cudaError_t error);
/* The error says what is missing and what to do. */
enum ls_status device_open(struct device **device);
/* From any thread, whether it was opened or not. */
bool device_is_lost(void);

/* Exchange the compute stream and the one aside: whoever enqueues on the compute stream does so aside, until they are
 * exchanged again. */
enum ls_status device_turn(struct device *d);

/* Device memory, zeroed, counted; `what` it is for. give takes NULL. What is left to others is not freed by give: it stays
 * until the process ends. */
enum ls_status device_take(size_t bytes, const char *what, void **memory);
void device_give(void *memory);
void device_leave(void *memory);
/* Host memory to the device's, behind what the compute stream was given before; the copy is done when it returns. */
enum ls_status device_put(void *to, const void *host, size_t bytes);
/* Bytes taken now, and at most so far. */
void device_taken(size_t *now, size_t *most);

/* Errors of the three libraries as ours; `what` says what was being done. */
enum ls_status cuda_check(cudaError_t error, const char *what);
enum ls_status cudnn_check(cudnnStatus_t error, const char *what);
enum ls_status blas_check(cublasStatus_t error, const char *what);
#define CUDA_TRY(call) LS_TRY(cuda_check((call), #call))

extern const struct ls_backend_queue ls_cuda_queue;
extern const struct ls_backend_peers ls_cuda_peers;
void ls_cuda_about(struct ls_backend_about *about);
int ls_cuda_cards(struct ls_backend_card *list, int room, char *why, size_t room_why);

#endif
