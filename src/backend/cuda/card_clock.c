#include "backend/cuda/card_clock.h"
#include "base/system/clock.h"

#include <math.h>

#define TRY(call)                    \
    do {                             \
        cudaError_t error_ = (call); \
        if (error_ != cudaSuccess)   \
            return error_;           \
    } while (0)

static void swap(cudaEvent_t *a, cudaEvent_t *b)
{
    cudaEvent_t c = *a;
    *a = *b;
    *b = c;
}

cudaError_t card_clock_open(struct card_clock *c)
{
    int least, greatest;
    *c = (struct card_clock){0};
    /* Streams of another priority are queued apart, so that an event does not stand behind a step. */
    TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    TRY(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest));
    TRY(cudaEventCreate(&c->anchor));
    return cudaEventCreate(&c->spare);
}

void card_clock_close(struct card_clock *c)
{
    if (c->anchor)
        cudaEventDestroy(c->anchor);
    if (c->spare)
        cudaEventDestroy(c->spare);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    *c = (struct card_clock){0};
}

cudaError_t card_clock_between(cudaEvent_t from, cudaEvent_t to, double *seconds)
{
    float ms = 0;
    TRY(cudaEventElapsedTime(&ms, from, to));
    *seconds = 1e-3 * (double)ms;
    return cudaSuccess;
}

/* Records `spare` some times. Leaves in *best the one whose time on the host is known best. */
static cudaError_t meet_host(struct card_clock *c, cudaEvent_t *best, double *host)
{
    enum { TRIES = 8 };
    double shortest = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        double before = ls_now();
        TRY(cudaEventRecord(c->spare, c->stream));
        TRY(cudaEventSynchronize(c->spare));
        double took = ls_now() - before;
        if (took >= shortest)
            continue;
        shortest = took;
        *host = before + took / 2;
        swap(best, &c->spare);
    }
    return cudaSuccess;
}

cudaError_t card_clock_set(struct card_clock *c)
{
    c->is_set = true;
    c->anchor_time = 0;
    return meet_host(c, &c->anchor, &c->host);
}

/* The last event is the next anchor. */
static cudaError_t advance(struct card_clock *c)
{
    double passed;
    TRY(cudaEventRecord(c->spare, c->stream));
    TRY(cudaEventSynchronize(c->spare));
    TRY(card_clock_between(c->anchor, c->spare, &passed));
    c->anchor_time += passed;
    swap(&c->anchor, &c->spare);
    return cudaSuccess;
}

cudaError_t card_clock_record(struct card_clock *c, cudaEvent_t event, double *time)
{
    double passed;
    TRY(advance(c));
    TRY(cudaEventRecord(event, c->stream));
    TRY(cudaEventSynchronize(event));
    TRY(card_clock_between(c->anchor, event, &passed));
    *time = c->anchor_time + passed;
    return cudaSuccess;
}

cudaError_t card_clock_rate(struct card_clock *c, double *rate)
{
    const double odd = 0.01; /* no clock is as wrong as that */
    double host = c->host, passed = 0;
    cudaEvent_t event = NULL;
    TRY(advance(c));
    TRY(cudaEventCreate(&event));
    cudaError_t error = meet_host(c, &event, &host);
    if (error == cudaSuccess)
        error = card_clock_between(c->anchor, event, &passed);
    double seconds = c->anchor_time + passed;
    *rate = seconds > 0 ? (host - c->host) / seconds : 1;
    *rate = fabs(*rate - 1) > odd ? 1 : *rate;
    cudaEventDestroy(event);
    return error;
}
