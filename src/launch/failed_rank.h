/* How one rank prints the error of another: "rank 1 (host a) has failed: " and the text of that error. The ranks print it so,
 * and the parent of workers finds by it that two lines are about one error (stderr_dedup.c). */
#ifndef LS_LAUNCH_FAILED_RANK_H
#define LS_LAUNCH_FAILED_RANK_H

#define LS_HAS_FAILED ") has failed: "
/* Takes the rank (int), its host and its error. */
#define LS_FAILED_RANK "rank %d (host %s" LS_HAS_FAILED "%s"

#endif
