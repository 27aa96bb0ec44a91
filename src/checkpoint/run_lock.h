/* One training run at a time writes into a run directory: the one that RUN/lock names.
 *
 * The file is made by link(), which is atomic on NFS too, so it is never seen half written. Its holder touches it every
 * few seconds (a thread does that), by the clock of the file server.
 *
 *   Q1  Of many processes that want a lock at once, a free one or a stale one, one gets it.
 *   Q2  A lock is stale when its process is known to be gone (same boot of the same machine, same pid namespace, and no
 *       process with that pid and start time), or, where that cannot be seen, when it was not touched for
 *       ls_run_lock_times.stale seconds.
 *   Q3  A holder that lost its lock (it was stopped for long on a machine that the others cannot see) finds that out
 *       before it writes the next checkpoint. */
#ifndef LS_CHECKPOINT_RUN_LOCK_H
#define LS_CHECKPOINT_RUN_LOCK_H

#include "base/status.h"
#include <stdbool.h>

struct ls_run_lock; /* opaque */

struct ls_run_lock_times {
    double beat, stale; /* seconds */
};
#define LS_RUN_LOCK_TIMES ((struct ls_run_lock_times){.beat = 10, .stale = 180})

/* Take the lock of a directory that is there. Refuses with the name of the holder. argv: this process's command line, for
 * the message that others get; NULL: unknown. run stays while the lock is held. May wait `stale` seconds for a sign of life of a holder on another machine. */
enum ls_status ls_run_lock_take(const char *run, char *const *argv, struct ls_run_lock_times times,
                                struct ls_run_lock **lock);
/* Is the lock still this one's? A look at what is known, cheap enough for every step; `sure` reads the file.
 * LS_FAILED, with a message, once it is not. NULL is held for ever. Allocates nothing. */
enum ls_status ls_run_lock_held(struct ls_run_lock *lock, bool sure);
/* Give it back, and free it. NULL is fine. */
void ls_run_lock_release(struct ls_run_lock *lock);
/* Does a name in a run directory belong to this file? */
bool ls_run_lock_is_file(const char *name);

#endif
