/* The clock of the GPU, set against the host's. Events of CUDA have no time of their own, only a distance to another event, as
 * a float. So a chain of events is kept: the distance from a recent one is exact to a fraction of a microsecond.
 *
 * Functions return an error of CUDA; the clock is then of no use. */
#ifndef LS_BACKEND_CUDA_CARD_CLOCK_H
#define LS_BACKEND_CUDA_CARD_CLOCK_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct card_clock {
    cudaStream_t stream;       /* owned; idle but for the events of the clock, which therefore run at once */
    cudaEvent_t anchor, spare; /* owned */
    double anchor_time;        /* seconds of the GPU since the clock was set */
    bool is_set;
    double host; /* ls_now() when it was set */
};

cudaError_t card_clock_open(struct card_clock *c);
void card_clock_close(struct card_clock *c);
/* Sets the clock. The host's time is known to about half the time that an event takes there and back, a few microseconds. */
cudaError_t card_clock_set(struct card_clock *c);
/* Records the event now, waits until it is over, and gives its time in seconds of the GPU since the clock was set. */
cudaError_t card_clock_record(struct card_clock *c, cudaEvent_t event, double *time);
/* Seconds from an event to a later one. */
cudaError_t card_clock_between(cudaEvent_t from, cudaEvent_t to, double *seconds);
/* Compares both clocks again: the seconds of the host in one second of the GPU since the clock was set. */
cudaError_t card_clock_rate(struct card_clock *c, double *rate);

#endif
