/* The list of transports. */
#ifndef LS_COMM_TRANSPORTS_H
#define LS_COMM_TRANSPORTS_H

#include "comm/shm/shm_segment.h"
#include "comm/transport.h"

/* The transport of a launch; loads its module. */
enum ls_status ls_transport_find(const struct ls_launch *launch, const struct ls_transport **transport);

/* Shared memory, for the processes of one node. */
extern const struct ls_transport ls_transport_shm;
/* The same over an open segment (borrowed). Close it with the transport's close. */
enum ls_status ls_shm_on_segment(struct ls_shm_segment *segment, void **state);
/* The segment of an open ls_transport_shm. */
struct ls_shm_segment *ls_shm_segment_of(void *state);

#endif
