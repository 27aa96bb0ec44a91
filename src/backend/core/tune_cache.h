/* Which kernel a backend chose for which question ("conv fwd f32 src 64x256x14x14 ..."), as lines of text:
 *
 *     machine | question | kernel | milliseconds | digest
 *
 * A run keeps the lines that it computes with as its plan. The cache has the lines that were measured on this machine, so
 * that the next start measures nothing. The plan of a run comes before the cache, and never gets into it.
 *
 * The digest is that of the kernel's result for a fixed input: kernels with equal digests give equal bits. 0: there is
 * none, and the kernel's name stands for its bits. */
#ifndef LS_BACKEND_CORE_TUNE_CACHE_H
#define LS_BACKEND_CORE_TUNE_CACHE_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ls_tune_choice {
    char question[320], name[96];
    double ms;
    uint64_t digest;
    int used;      /* 1, 2, ...: in this order the program asked for it; 0: it did not */
    bool uncached; /* it is from a plan, or was not measured: not for the cache */
};

struct ls_tune_cache {
    char machine[160];           /* without '|' */
    struct ls_tune_choice *list; /* later ones count for more; owned */
    int n, room, used;
    bool learned;
    bool unreadable;       /* the cache is there, and is left as it is */
    const char *plan;      /* lines; NULL: none; borrowed */
    const char *plan_name; /* for people; NULL: nothing is said of kernels that it lacks; borrowed */
    bool quiet;            /* nothing is said of progress */
    bool binding;          /* every kernel must be taken from it */
    int missing;           /* kernels that could not be */
    double said;           /* when progress was last told */
};

/* machine, quiet and the plan are set; all else is zero. cache: a path, or NULL. */
enum ls_status ls_tune_cache_open(struct ls_tune_cache *a, const char *cache);
/* The kernel for a question; NULL: none is known. */
struct ls_tune_choice *ls_tune_cache_find(struct ls_tune_cache *a, const char *question);
/* The program computes with this answer. */
void ls_tune_cache_use(struct ls_tune_cache *a, struct ls_tune_choice *answer);
/* Nothing is known, or what is known (NULL: nothing) cannot be had here. An error if the plan must be followed. */
enum ls_status ls_tune_cache_miss(struct ls_tune_cache *a, const char *layer, const char *question,
                                  const struct ls_tune_choice *known);
/* A new one, which the program computes with. measured: the cache gets it. */
enum ls_status ls_tune_cache_add(struct ls_tune_cache *a, const char *question, const char *name, double ms,
                                 uint64_t digest, bool measured);
/* Kernels are about to be measured for a layer: says so now and then. */
void ls_tune_cache_progress(struct ls_tune_cache *a, const char *layer, const char *where);
/* Keep what was measured in the cache; *choices gets what the program computes with, as lines (ls_free); free all. */
enum ls_status ls_tune_cache_close(struct ls_tune_cache *a, const char *cache, char **choices);

/* A number for the bits that a program with these choices computes. */
uint64_t ls_tune_cache_identity(const char *choices);

#endif
