/* Copies of the values that updates change, in the host's memory, for strategies that work on values. There are copies only
 * where the backend has memory of its own; without copies these functions do nothing. A copy has the backend's layout: all
 * ranks have the same one, and strategies work value by value. */
#ifndef LS_EXEC_DEVICE_HOST_COPY_H
#define LS_EXEC_DEVICE_HOST_COPY_H

#include "exec/engine.h"

enum ls_status ls_host_copy_open(struct ls_engine *e);
void ls_host_copy_free(struct ls_engine *e);
/* Begins to copy what the updates left of a bucket's values to the host. */
enum ls_status ls_host_copy_fetch(struct ls_engine *e, int bucket, enum ls_sync_part part);
/* Waits for all fetches. */
enum ls_status ls_host_copy_arrived(struct ls_engine *e);
/* Copies all values of all buckets to the host. */
enum ls_status ls_host_copy_pull_all(struct ls_engine *e);
/* Begins to copy back what a strategy changed, after a step or a collection. The copies must not change until the next
 * arrived, wait, or gradient. */
enum ls_status ls_host_copy_push(struct ls_engine *e, enum ls_sync_part part);
/* Waits for a push. */
enum ls_status ls_host_copy_wait(struct ls_engine *e);

#endif
