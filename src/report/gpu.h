/* Utilisation, memory, power, clock and temperature of an NVIDIA GPU from NVML (libnvidia-ml.so.1). A thread samples twice a
 * second, so that callers never wait for the driver. Without the library or the GPU no values are available; that is no
 * error. */
#ifndef LS_REPORT_GPU_H
#define LS_REPORT_GPU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value that the driver does not provide is NaN. */
struct ls_gpu_state {
    double utilisation; /* % of the time in which a kernel ran */
    double memory;      /* bytes in use by all processes */
    double power;       /* W */
    double clock;       /* MHz, of the multiprocessors */
    double temperature; /* degrees Celsius */
};
#define LS_GPU_FIGURES ((int)(sizeof(struct ls_gpu_state) / sizeof(double)))

/* Sums over samples; the difference of two gives the mean over the time between. */
struct ls_gpu_sums {
    int64_t n[LS_GPU_FIGURES];
    double sum[LS_GPU_FIGURES];
};

struct ls_gpu {
    void *library;              /* owned; NULL: no values are available */
    const struct ls_nvml *nvml; /* owned; functions of the library */
    void *card;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t ended;
    bool end;
    struct ls_gpu_state last;
    struct ls_gpu_sums sums;
    double most_memory;
};

/* Starts the sampling thread. bus: the PCI bus id of the GPU; "": none. Returns false if no values will be available. *g
 * must not move. */
bool ls_gpu_watch(struct ls_gpu *g, const char *bus);
/* May be called on a zeroed struct, and twice. */
void ls_gpu_stop(struct ls_gpu *g);

/* Returns the last sample; false if no values are available. */
bool ls_gpu_last(struct ls_gpu *g, struct ls_gpu_state *state);
/* Returns the sums so far. */
void ls_gpu_sums(struct ls_gpu *g, struct ls_gpu_sums *sums);
/* Computes the means since `since` (NULL or zero: since the start); mean->memory is the largest use so far. False if there is
 * no sample. */
bool ls_gpu_mean(struct ls_gpu *g, const struct ls_gpu_sums *since, struct ls_gpu_state *mean);

/* Formats the available values: "97% busy on average, 412 W, 1755 MHz, 10.3 GiB". */
#define LS_GPU_TEXT 128
void ls_gpu_text(const struct ls_gpu_state *mean, char text[LS_GPU_TEXT]);

/* Returns the version of the driver, such as "580.65.06"; false if there is none. */
bool ls_gpu_driver(char *version, size_t room);

#endif
