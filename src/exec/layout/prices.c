/* What sums and messages cost. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "base/system/clock.h"
#include "exec/layout/layout.h"

#include <time.h>

enum { SHORT = 4096 };
enum { TAG_PRICE = LS_TAG_LIMIT - 8 };

/* Of all threads of this process. */
static double process_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum ls_status ls_time_sum(struct ls_comm *comm, void *memory, size_t bytes, struct ls_timing *t)
{
    float *parts[LS_TIMED_PARTS];
    for (int i = 0; i < LS_TIMED_PARTS; i++)
        parts[i] = memory;
    struct ls_work w = {
        .kind = LS_WORK_ALLREDUCE, .data = memory, .bytes = bytes, .parts = parts, .step = 0, .bucket = -1};
    double start = ls_now(), work = process_seconds();
    LS_TRY(ls_comm_do(comm, &w));
    *t = (struct ls_timing){ls_now() - start, process_seconds() - work};
    return LS_OK;
}

/* Every process sends to the next one. */
enum ls_status ls_time_messages(struct ls_comm *comm, void *memory, size_t bytes, struct ls_timing *t)
{
    int rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    struct ls_work in = {.kind = LS_WORK_RECEIVE, .peer = (rank + size - 1) % size, .tag = TAG_PRICE, .bytes = bytes};
    struct ls_work out = {.kind = LS_WORK_SEND, .peer = (rank + 1) % size, .tag = TAG_PRICE, .bytes = bytes};
    in.data = memory;
    out.data = (char *)memory + bytes;
    LS_TRY(ls_comm_barrier(comm));
    double start = ls_now(), work = process_seconds();
    ls_comm_post(comm, &in);
    ls_comm_post(comm, &out);
    enum ls_status got = ls_comm_wait(comm, &in), sent = ls_comm_wait(comm, &out);
    *t = (struct ls_timing){ls_now() - start, process_seconds() - work};
    return got != LS_OK ? got : sent;
}

/* The slowest process decides, and each counts with its own work. Every rank gets the same. */
static enum ls_status gather_timing(struct ls_comm *comm, struct ls_timing *t)
{
    int size = ls_comm_size(comm);
    struct ls_timing *all = ls_alloc((size_t)size, sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(comm, t, sizeof *t, all) : LS_FAILED;
    *t = (struct ls_timing){0};
    for (int r = 0; r < size && st == LS_OK; r++) {
        t->seconds = all[r].seconds > t->seconds ? all[r].seconds : t->seconds;
        t->work += all[r].work / size;
    }
    ls_free(all);
    return st;
}

/* alpha from few bytes, beta and the work from many: more than a switch lets through at once. */
enum ls_status ls_price(struct ls_comm *comm, ls_timed *run, void *context, size_t many, struct ls_cost *cost,
                        double *work)
{
    struct ls_timing best[2] = {{1e9, 0}, {1e9, 0}};
    for (int i = 0; i < 6; i++) {
        struct ls_timing t;
        int kind = i < 3 ? 0 : 1;
        LS_TRY(run(comm, context, kind ? many : SHORT, &t));
        LS_TRY(gather_timing(comm, &t));
        if (i % 3 > 0 && t.seconds < best[kind].seconds)
            best[kind] = t;
    }
    cost->beta = best[1].seconds > best[0].seconds ? (best[1].seconds - best[0].seconds) / (double)(many - SHORT) : 0;
    cost->alpha = best[0].seconds;
    *work = best[1].work / (double)many;
    return LS_OK;
}
