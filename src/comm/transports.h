/* The list of transports. */
#ifndef LS_COMM_TRANSPORTS_H
#define LS_COMM_TRANSPORTS_H

#include "comm/shm/shm_segment.h"
#include "comm/transport.h"

/* What carries a launch of this kind; loads the module that has it. */
enum ls_status ls_transport_find(const struct ls_launch *launch, const struct ls_transport **transport);

/* Shared memory, for the processes of one node. */
extern const struct ls_transport ls_transport_shm;
/* The same over a segment that is there already (borrowed); close with the transport's. */
enum ls_status ls_shm_on_segment(struct ls_shm_segment *segment, void **state);
/* The segment under an opened ls_transport_shm. */
struct ls_shm_segment *ls_shm_segment_of(void *state);

#endif
