/* What this machine can do: the roof that nodes of a step are compared with. */
#ifndef LS_CMD_BENCH_PROFILE_PEAKS_H
#define LS_CMD_BENCH_PROFILE_PEAKS_H

#include "exec/engine.h"

struct ls_bench_peaks {
    double bytes;      /* a second, to and from memory; 0: not known */
    double operations; /* a second, of a large matrix product in the type of the run; 0: not known */
    char date[12];     /* when they were measured */
};

/* The peaks of the engine's backend with its threads and --dtype: those of the user's cache, or measured now, which takes about
 * a second, and kept there. Where memory is too short to measure, peaks are 0. The engine's arena stays as it is. */
enum ls_status ls_bench_peaks(const struct ls_options *o, struct ls_engine *e, struct ls_bench_peaks *peaks);
/* A dense layer of the step has computed so many operations a second: raises the peak to that, also in the cache, if it
 * was lower. */
void ls_bench_peaks_raise(const struct ls_options *o, const struct ls_engine *e, double operations,
                          struct ls_bench_peaks *p);

/* peaks_cache.c: the cache is a JSON file, "peaks.json". Peaks of other machines, backends, threads and types stay in
 * it. A cache that cannot be read or written is none. */
bool ls_bench_peaks_recall(const char *key, struct ls_bench_peaks *peaks);
void ls_bench_peaks_keep(const char *key, const struct ls_bench_peaks *peaks);

/* The least time of so many bytes and operations; 0: peaks are not known. */
static inline double ls_bench_roof(const struct ls_bench_peaks *p, double bytes, double operations)
{
    if (!(p->bytes > 0 && p->operations > 0))
        return 0;
    double moving = bytes / p->bytes, computing = operations / p->operations;
    return moving > computing ? moving : computing;
}

#endif
