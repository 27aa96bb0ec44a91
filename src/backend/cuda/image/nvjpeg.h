/* The part of the interface of nvJPEG (versions 12 and 13) that is used here: names, numbers and signatures as NVIDIA documents
 * them. The library is loaded at run time. */
#ifndef LS_BACKEND_CUDA_IMAGE_NVJPEG_H
#define LS_BACKEND_CUDA_IMAGE_NVJPEG_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* nvjpegStatus_t; the others are the device's errors */
enum {
    NVJPEG_SUCCESS = 0,
    NVJPEG_INVALID = 2,
    NVJPEG_BAD = 3,
    NVJPEG_UNSUPPORTED = 4,
    NVJPEG_UNSUITED = 7, /* to this device */
    NVJPEG_UNIMPLEMENTED = 9,
    NVJPEG_INCOMPLETE = 10
};

/* nvjpegBackend_t */
enum {
    NVJPEG_HYBRID = 1,  /* Huffman codes by the calling thread, the rest by the GPU's kernels */
    NVJPEG_HARDWARE = 3 /* all by the GPU's JPEG engines */
};

/* nvjpegOutputFormat_t */
enum {
    NVJPEG_Y = 2,   /* luma */
    NVJPEG_RGBI = 5 /* interleaved RGB */
};

/* Of nvjpegCreateEx, bits. */
enum {
    NVJPEG_STRICT = 4,      /* refuse what does not follow the specification */
    NVJPEG_INTERPOLATE = 32 /* colour between its samples, as libjpeg does */
};

#define NVJPEG_COMPONENTS 4

/* nvjpegImage_t; interleaved pixels and luma go to the first channel. */
struct nvjpeg_image {
    unsigned char *channel[NVJPEG_COMPONENTS];
    size_t pitch[NVJPEG_COMPONENTS];
};

/* Handles are for all threads and a state for one; both belong to the device that was current when they were made. Each
 * function returns an nvjpegStatus_t. */
struct nvjpeg {
    /* nvjpegCreateEx; NULL allocators: cudaMalloc and cudaHostAlloc */
    int (*create)(int backend, void *device_allocator, void *pinned_allocator, unsigned flags, void **handle);
    /* nvjpegSetDeviceMemoryPadding, nvjpegSetPinnedMemoryPadding: sizes of memory are multiples of this */
    int (*pad_device)(size_t bytes, void *handle);
    int (*pad_pinned)(size_t bytes, void *handle);
    /* nvjpegJpegStateCreate, nvjpegJpegStateDestroy */
    int (*open_state)(void *handle, void **state);
    int (*close_state)(void *state);
    /* nvjpegGetImageInfo; widths and heights of NVJPEG_COMPONENTS components, the first is the image's */
    int (*info)(void *handle, const unsigned char *bytes, size_t size, int *components, int *subsampling, int *widths,
                int *heights);
    /* nvjpegDecode: enqueues, and may read the bytes until the stream is done */
    int (*decode)(void *handle, void *state, const unsigned char *bytes, size_t size, int format,
                  struct nvjpeg_image *to, cudaStream_t stream);
};

#endif
