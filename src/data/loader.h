/* The loader's internals, shared by loader.c (the caller's side), loader_fill.c (the threads) and loader_new.c.
 *
 * Slots are numbered 0, 1, 2 ... in the order in which next returns them; slot s is at place s % ring.
 *
 *        released          taken                      opened
 *   released   |  held by the caller |  filled or being filled  |  not opened: its place is still in use
 *
 * Invariants, all under the lock:
 *   1. released <= taken <= opened <= released + ring, taken - released <= 1 + held.
 *   2. Threads claim samples in order, a chunk at a time, from the slot opened last only.
 *   3. The contents of a slot depend only on its number and the options, not on the threads that fill it or on their number,
 *      which the tuner may change between two slots.
 *   4. Threads with an index below `active` wait for work, the others for a larger `active`. */
#ifndef LS_DATA_LOADER_H
#define LS_DATA_LOADER_H

#include "data/dataset.h"
#include "data/tuner.h"
#include "base/trace.h"
#include <pthread.h>

struct place {
    struct ls_slot slot;
    int64_t given, unfilled; /* samples claimed by threads; samples not filled yet */
    enum ls_status status;
    int64_t bad_index, bad_sample; /* the first sample of the slot that failed */
    char why[sizeof((struct ls_image *)0)->why];
};

struct worker {
    struct ls_loader *loader; /* borrowed */
    pthread_t thread;
    int index;
    struct ls_image image, scratch;
    int64_t broken;         /* samples of the claimed chunk that could not be read */
    struct ls_track *track; /* borrowed; NULL: this thread is not recorded */
};

struct ls_loader {
    struct ls_loader_options o;
    int *order; /* owned */
    struct ls_sampler sampler;
    int64_t chunk, values; /* samples per claim; values per image */
    void *region;          /* owned; memory of all slots */
    size_t region_bytes;
    struct place *places;  /* owned; ring entries */
    struct worker *worker; /* owned; n_worker entries */
    int n_worker, workers; /* workers: the number that was started */

    pthread_mutex_t lock;
    pthread_cond_t work, more, filled; /* signalled for: a slot to fill; a larger `active`; a filled slot */
    /* Protected by the lock: */
    uint64_t released, taken, opened;
    uint64_t epoch; /* start of the slot that is opened next */
    int64_t position, part;
    bool ended, stop;
    int active;             /* number of workers that fill slots */
    bool sleepy;            /* they often wait for storage */
    double prepared;        /* samples filled, with older ones weighted less */
    double prepare_seconds; /* time of all threads for them */
    double read_seconds;    /* the part of it spent waiting for storage */
    /* Used by the caller's thread only: */
    enum ls_status failed;
    double waited;
    struct ls_tuner tuner;
    double last;         /* ls_now() of the last slot; 0: none yet */
    uint64_t last_epoch; /* its epoch */
    int64_t used;        /* samples taken after the first ring of slots */
    double use_seconds;  /* time of the caller for them, without waiting */
};

static inline struct place *place_of(struct ls_loader *l, uint64_t slot)
{
    return &l->places[slot % (uint64_t)l->o.ring];
}

/* The callers of the three functions below hold the lock. */
/* Moves on to the next epoch at the end of one; ends the loader after the last. */
void ls_loader_close_epoch(struct ls_loader *l);
/* Sets the number of threads that fill slots. Wakes all threads: those that are to rest may be waiting for work and must not
 * take a signal meant for another. */
void ls_loader_set_active(struct ls_loader *l, int threads);
/* Returns the largest useful number of threads, given how much they wait for storage. */
int ls_loader_max_threads(struct ls_loader *l);
/* The main function of a loader thread; the argument is its struct worker. */
void *ls_loader_work(void *worker);

#endif
