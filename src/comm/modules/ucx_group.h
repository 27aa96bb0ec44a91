/* The inside of transport `ucx`. */
#ifndef LS_COMM_MODULES_UCX_GROUP_H
#define LS_COMM_MODULES_UCX_GROUP_H

#include "comm/rendezvous/rendezvous.h"
#include "comm/transport.h"

#include <ucp/api/ucp.h>

enum { LS_UCX_RANK_BITS = 16 }; /* of a tag */

enum ls_ucx_kind { LS_UCX_DATA = 1, LS_UCX_HELLO, LS_UCX_GOODBYE };

struct ls_ucx_peer {
    struct ls_ucx_group *group; /* borrowed */
    ucp_ep_h endpoint;
    ucs_status_t lost; /* UCS_OK: it is there */
    uint8_t theirs[LS_PROOF];
    struct ls_transport_request sent, heard;
};

struct ls_ucx_group {
    struct ls_rendezvous rendezvous;
    ucp_context_h context;
    ucp_worker_h worker;
    bool may_listen;  /* UCX may listen on TCP ports */
    bool abandoned;   /* UCX still uses a buffer that is no longer valid: it is not called any more */
    double last_wait; /* until when cancelled requests may still finish; 0: none was cancelled */
    uint64_t secret;
    struct ls_ucx_peer *peers; /* owned; size of them */
    uint8_t *hellos;           /* owned; one proof for each */
    int rank, size, any_lost;  /* any_lost: a rank, -1: none */
};

/* Reports that a call of UCX failed. */
enum ls_status ls_ucx_fail(ucs_status_t code, const char *what);

/* ucx.c */
enum ls_status ls_ucx_send(struct ls_ucx_group *g, enum ls_ucx_kind kind, int peer, uint32_t tag, const void *data,
                           size_t bytes, struct ls_transport_request *request);
enum ls_status ls_ucx_receive(struct ls_ucx_group *g, enum ls_ucx_kind kind, int peer, uint32_t tag, void *data,
                              size_t room, struct ls_transport_request *request);
enum ls_status ls_ucx_test(void *state, struct ls_transport_request *request, bool *done);
void ls_ucx_cancel(void *state, struct ls_transport_request *request);

/* ucx_start.c */
/* Makes the context and the worker of UCX. */
enum ls_status ls_ucx_start(struct ls_ucx_group *g, const struct ls_launch *launch);

/* ucx_connect.c */
enum ls_status ls_ucx_open(struct ls_launch *launch, double deadline, void **state);
void ls_ucx_close(void *state, bool graceful);

#endif
