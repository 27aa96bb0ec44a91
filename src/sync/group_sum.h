/* A bucket summed among some of the processes (struct ls_sync_group), while other groups sum theirs. Each adds a range of all
 * parts along the group's tree, and sends it to the others. It takes messages alone, which go beside collectives. */
#ifndef LS_SYNC_GROUP_SUM_H
#define LS_SYNC_GROUP_SUM_H

#include "sync/sync.h"

struct ls_group_sum; /* opaque */

/* All of the group make the same ones, in the same order. s is borrowed, and has a group. */
enum ls_status ls_group_sum_new(struct ls_sync *s, int bucket, struct ls_group_sum **sum);
/* After an error, works that are under way end the group of all processes (ls_comm_give_up). NULL is fine. */
void ls_group_sum_free(struct ls_group_sum *sum);

/* parts: this process's, in the order of the group's tree; the last one is in the place of the bucket in grads, and becomes the
 * sum. They may not change until the sum is done. */
void ls_group_sum_post(struct ls_group_sum *sum, float *const *parts);
/* Goes on as far as messages have come; wait: until the sum is done. */
enum ls_status ls_group_sum_advance(struct ls_group_sum *sum, bool wait);
bool ls_group_sum_done(const struct ls_group_sum *sum);

#endif
