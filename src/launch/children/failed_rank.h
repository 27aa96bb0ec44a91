/* How one rank prints the error of another: "rank 1 (host a) has failed: " and the text of that error, or, before all are
 * connected, "rank 0 at a:29500 refuses rank 1: " and that text. The ranks print it so, and the parent of workers finds by it
 * that two lines are about one error (stderr_dedup.c). */
#ifndef LS_LAUNCH_FAILED_RANK_H
#define LS_LAUNCH_FAILED_RANK_H

#define LS_HAS_FAILED ") has failed: "
/* Takes the rank (int), its host and its error. */
#define LS_FAILED_RANK "rank %d (host %s" LS_HAS_FAILED "%s"

#define LS_REFUSES_RANK " refuses rank "
/* Takes address and port of rank 0, the rank (int) and the error. */
#define LS_REFUSED_RANK "rank 0 at %s:%d" LS_REFUSES_RANK "%d: %s"

#endif
