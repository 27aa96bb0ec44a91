/* Which kernel a backend chose for which question ("conv fwd f32 src 64x256x14x14 ..."), as lines of text:
 *
 *     machine | question | kernel | milliseconds | digest
 *
 * The plan of a run has the lines that the run computes with. The cache has the lines that were measured on this machine, so
 * that the next start measures nothing. A plan has priority over the cache and is never written to it.
 *
 * The digest is that of the kernel's result for a fixed input: kernels with equal digests give equal bits. A digest of 0 means
 * that there is none; then the name of the kernel stands for its bits. */
#ifndef LS_BACKEND_CORE_TUNE_CACHE_H
#define LS_BACKEND_CORE_TUNE_CACHE_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ls_tune_choice {
    char question[320], name[96];
    double ms;
    uint64_t digest;
    int used;      /* position in the order of the program's questions, from 1; 0: not asked */
    bool uncached; /* from a plan, or not measured: not for the cache */
};

struct ls_tune_cache {
    char machine[160];           /* without '|' */
    struct ls_tune_choice *list; /* later lines have priority; owned */
    int n, room, used;
    bool learned;
    bool unreadable;       /* the cache exists and stays as it is */
    const char *plan;      /* lines; NULL: none; borrowed */
    const char *plan_name; /* for messages; NULL: no messages about kernels that it lacks; borrowed */
    bool quiet;            /* no messages about progress */
    bool binding;          /* every kernel must come from the plan */
    int missing;           /* kernels of the plan that are not available */
    double said;           /* time of the last message about progress */
};

/* machine, quiet and the plan are set; all else is zero. cache: a path, or NULL. */
enum ls_status ls_tune_cache_open(struct ls_tune_cache *a, const char *cache);
/* The kernel for a question; NULL: none is known. */
struct ls_tune_choice *ls_tune_cache_find(struct ls_tune_cache *a, const char *question);
/* The program computes with this choice. */
void ls_tune_cache_use(struct ls_tune_cache *a, struct ls_tune_choice *answer);
/* Nothing is known (NULL), or the known kernel is not available. An error if the plan is binding. */
enum ls_status ls_tune_cache_miss(struct ls_tune_cache *a, const char *layer, const char *question,
                                  const struct ls_tune_choice *known);
/* A new choice, which the program computes with. measured: write it to the cache. */
enum ls_status ls_tune_cache_add(struct ls_tune_cache *a, const char *question, const char *name, double ms,
                                 uint64_t digest, bool measured);
/* Kernels are about to be measured for a layer: tell the user now and then. */
void ls_tune_cache_progress(struct ls_tune_cache *a, const char *layer, const char *where);
/* Write what was measured to the cache; *choices: the lines that the program computes with (ls_free); free the rest. */
enum ls_status ls_tune_cache_close(struct ls_tune_cache *a, const char *cache, char **choices);

/* A number for the bits that a program with these choices computes. */
uint64_t ls_tune_cache_identity(const char *choices);

#endif
