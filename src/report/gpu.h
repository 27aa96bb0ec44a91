/* How busy a card of NVIDIA's is, as its driver's library (libnvidia-ml.so.1) has it: a thread asks twice a second, so
 * that nobody else ever waits for an answer. Where the library or the card is missing nothing is known, silently. */
#ifndef LS_REPORT_GPU_H
#define LS_REPORT_GPU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the driver cannot tell is not a number. */
struct ls_gpu_state {
    double utilisation; /* % of the time in which a kernel ran */
    double memory;      /* bytes in use, by anybody */
    double power;       /* W */
    double clock;       /* MHz, of the multiprocessors */
    double temperature; /* degrees Celsius */
};
#define LS_GPU_FIGURES ((int)(sizeof(struct ls_gpu_state) / sizeof(double)))

/* Sums over samples, for a mean over any stretch of time. */
struct ls_gpu_sums {
    int64_t n[LS_GPU_FIGURES];
    double sum[LS_GPU_FIGURES];
};

struct ls_gpu {
    void *library;              /* owned; NULL: nothing is known */
    const struct ls_nvml *nvml; /* owned: the library's functions */
    void *card;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t ended;
    bool end;
    struct ls_gpu_state last;
    struct ls_gpu_sums sums;
    double most_memory;
};

/* bus: the PCI bus id of the card; "": there is none. False: nothing will be known. g must stay where it is. */
bool ls_gpu_watch(struct ls_gpu *g, const char *bus);
/* Safe on a zeroed struct and twice. */
void ls_gpu_stop(struct ls_gpu *g);

/* The last sample; false: nothing is known. */
bool ls_gpu_last(struct ls_gpu *g, struct ls_gpu_state *state);
/* The sums so far; means are over the samples since `since` (zero: since the beginning), of memory the largest use so far.
 * False: there was none. */
void ls_gpu_sums(struct ls_gpu *g, struct ls_gpu_sums *sums);
bool ls_gpu_mean(struct ls_gpu *g, const struct ls_gpu_sums *since, struct ls_gpu_state *mean);

/* "97% busy on average, 412 W, 1755 MHz, 10.3 GiB" of what is known. */
#define LS_GPU_TEXT 128
void ls_gpu_text(const struct ls_gpu_state *mean, char text[LS_GPU_TEXT]);

/* The driver's version ("580.65.06"); false: no driver. */
bool ls_gpu_driver(char *version, size_t room);

#endif
