/* The lock of a run directory: one training run at a time writes to it, the one that RUN/lock names.
 *
 * link() creates the file; it is atomic on NFS too, so readers never see a partial file. A thread of the holder touches the
 * file every few seconds; the file server's clock sets the time.
 *
 *   Q1  If several processes want a free or stale lock at once, exactly one gets it.
 *   Q2  A lock is stale if its process has ended. That is known if the lock is from the same boot of the same machine and
 *       the same pid namespace, and no process has its pid and start time. Otherwise the lock is stale if it was not touched
 *       for ls_run_lock_times.stale seconds.
 *   Q3  A holder that lost its lock, for example after a long suspend, detects that before it writes a checkpoint. */
#ifndef LS_CHECKPOINT_RUN_LOCK_H
#define LS_CHECKPOINT_RUN_LOCK_H

#include "base/status.h"
#include <stdbool.h>

struct ls_run_lock; /* opaque */

struct ls_run_lock_times {
    double touch, stale; /* seconds between touches; seconds without a touch until a lock is stale */
};
#define LS_RUN_LOCK_TIMES ((struct ls_run_lock_times){.touch = 10, .stale = 180})

/* Takes the lock of an existing directory. If another run holds it, reports that run and returns LS_FAILED. argv: the command
 * line of this process, shown to others; NULL: unknown. run must stay valid while the lock is held. May wait up to `stale`
 * seconds for a holder on another machine. */
enum ls_status ls_run_lock_take(const char *run, char *const *argv, struct ls_run_lock_times times,
                                struct ls_run_lock **lock);
/* Returns LS_OK while this process holds the lock; reports an error and returns LS_FAILED once it lost it. Cheap enough for
 * every step; with `sure` it reads the file. NULL counts as held. Allocates nothing. */
enum ls_status ls_run_lock_held(struct ls_run_lock *lock, bool sure);
/* Releases and frees the lock; takes NULL. */
void ls_run_lock_release(struct ls_run_lock *lock);
/* Tests whether a name in a run directory belongs to the lock. */
bool ls_run_lock_is_file(const char *name);

#endif
