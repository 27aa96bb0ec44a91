/* Transport `ucx`: messages over UCX, which uses TCP, shared memory and RDMA. The processes find each other by a rendezvous
 * (rendezvous/rendezvous.h).
 *
 * UCX opens ports, and any process that reaches them can send. A message is received only under a tag that this rank waits
 * for. Tags contain a secret of the run:
 *
 *     48 bits: (2^32 * kind + tag) xor the secret      16 bits: the sender's rank
 *
 *   UCX-1  The first message of a peer is its hello, a proof of the key of the rendezvous. Without it open fails, so that no
 *          other message of that peer is received.
 *   UCX-2  A message of a process that does not know the secret matches no receive.
 *   UCX-4  After ls_ucx_cancel UCX no longer uses the buffer of the request. */
#include "base/log.h"
#include "base/system/clock.h"
#include "comm/modules/ucx_group.h"

#include <stdio.h>

#define CANCEL_SECONDS 1.0

/* What a transport's request holds. */
struct request {
    void *handle; /* of UCX; NULL: done */
    enum { SEND, RECEIVE } direction;
    ucs_status_t status;
};
_Static_assert(sizeof(struct request) <= sizeof((struct ls_transport_request *)0)->words, "no room for a request");

static struct request *inside(struct ls_transport_request *request)
{
    return (struct request *)(void *)request->words;
}

enum ls_status ls_ucx_fail(ucs_status_t code, const char *what)
{
    return ls_fail(LS_FAILED, "UCX: %s failed: %s", what, ucs_status_string(code));
}

static ucp_tag_t tag_of(const struct ls_ucx_group *g, enum ls_ucx_kind kind, uint32_t tag, int sender)
{
    uint64_t name = ((uint64_t)kind << 32 | tag) ^ g->secret;
    return name << LS_UCX_RANK_BITS | (uint64_t)sender;
}

/* The rank that is gone: the peer, or, for a receive from any rank, any. -1: none. */
static int lost_peer(const struct ls_ucx_group *g, int peer)
{
    if (peer < 0)
        return g->any_lost;
    return g->peers[peer].lost != UCS_OK ? peer : -1;
}

enum ls_status ls_ucx_send(struct ls_ucx_group *g, enum ls_ucx_kind kind, int peer, uint32_t tag, const void *data,
                           size_t bytes, struct ls_transport_request *request)
{
    const ucp_request_param_t param = {0};
    struct request *r = inside(request);
    *r = (struct request){.direction = SEND};
    request->peer = peer;
    request->bytes = bytes;
    if (lost_peer(g, peer) >= 0 || g->abandoned)
        return LS_PEER_LOST;
    void *handle = ucp_tag_send_nbx(g->peers[peer].endpoint, data, bytes, tag_of(g, kind, tag, g->rank), &param);
    if (UCS_PTR_IS_ERR(handle)) {
        r->status = UCS_PTR_STATUS(handle);
        return LS_PEER_LOST;
    }
    r->handle = handle;
    return LS_OK;
}

enum ls_status ls_ucx_receive(struct ls_ucx_group *g, enum ls_ucx_kind kind, int peer, uint32_t tag, void *data,
                              size_t room, struct ls_transport_request *request)
{
    /* UCX 1.13 reports the sender of a message only through a request, so that a receive must always have one. */
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    struct request *r = inside(request);
    ucp_tag_t mask = peer < 0 ? ~(((ucp_tag_t)1 << LS_UCX_RANK_BITS) - 1) : ~(ucp_tag_t)0;
    *r = (struct request){.direction = RECEIVE};
    request->peer = peer;
    request->too_long = false;
    if (g->abandoned)
        return LS_PEER_LOST;
    void *handle = ucp_tag_recv_nbx(g->worker, data, room, tag_of(g, kind, tag, peer < 0 ? 0 : peer), mask, &param);
    if (UCS_PTR_IS_ERR(handle))
        return ls_ucx_fail(UCS_PTR_STATUS(handle), "a receive");
    r->handle = handle;
    return LS_OK;
}

static enum ls_status ucx_send(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                               struct ls_transport_request *request)
{
    return ls_ucx_send(state, LS_UCX_DATA, peer, tag, data, bytes, request);
}

static enum ls_status ucx_receive(void *state, int peer, uint32_t tag, void *data, size_t room,
                                  struct ls_transport_request *request)
{
    return ls_ucx_receive(state, LS_UCX_DATA, peer, tag, data, room, request);
}

static enum ls_status settle(struct ls_ucx_group *g, struct ls_transport_request *request, ucs_status_t code,
                             const ucp_tag_recv_info_t *info, bool *done)
{
    struct request *r = inside(request);
    int asked = request->peer;
    ucp_request_free(r->handle);
    r->handle = NULL;
    r->status = code;
    if (code == UCS_OK) {
        if (r->direction == RECEIVE) {
            request->bytes = info->length;
            request->peer = (int)(info->sender_tag & (((ucp_tag_t)1 << LS_UCX_RANK_BITS) - 1));
        }
        *done = true;
        return LS_OK;
    }
    if (code == UCS_ERR_MESSAGE_TRUNCATED) {
        r->status = UCS_OK;
        *done = request->too_long = true;
        return LS_OK;
    }
    int gone = lost_peer(g, asked);
    request->peer = gone >= 0 ? gone : asked;
    return LS_PEER_LOST;
}

/* A message that has arrived counts, even if its sender is gone. */
enum ls_status ls_ucx_test(void *state, struct ls_transport_request *request, bool *done)
{
    struct ls_ucx_group *g = state;
    struct request *r = inside(request);
    ucp_tag_recv_info_t info = {0};
    *done = false;
    if (g->abandoned)
        return LS_PEER_LOST;
    while (ucp_worker_progress(g->worker))
        ;
    if (!r->handle) {
        *done = r->status == UCS_OK;
        return *done ? LS_OK : LS_PEER_LOST;
    }
    ucs_status_t code =
        r->direction == RECEIVE ? ucp_tag_recv_request_test(r->handle, &info) : ucp_request_check_status(r->handle);
    if (code != UCS_INPROGRESS)
        return settle(g, request, code, &info, done);
    int gone = lost_peer(g, request->peer);
    if (gone < 0)
        return LS_OK;
    request->peer = gone;
    return LS_PEER_LOST;
}

static bool is_under_way(const struct request *r)
{
    return ucp_request_check_status(r->handle) == UCS_INPROGRESS;
}

/* UCX can cancel a receive that no message has matched, and nothing else: even when UCX 1.13 closes the connection by force,
 * it reads the buffers of sends that are half out. So requests get a second to finish, all of them together. If one does
 * not, UCX is not called any more (UCX-4). */
void ls_ucx_cancel(void *state, struct ls_transport_request *request)
{
    struct ls_ucx_group *g = state;
    struct request *r = inside(request);
    if (!r->handle || g->abandoned)
        return;
    if (r->direction == RECEIVE)
        ucp_request_cancel(g->worker, r->handle);
    if (is_under_way(r) && g->last_wait == 0)
        g->last_wait = ls_now() + CANCEL_SECONDS;
    while (is_under_way(r) && ls_now() < g->last_wait)
        ucp_worker_progress(g->worker);
    g->abandoned = is_under_way(r);
    if (g->abandoned)
        return;
    ucp_request_free(r->handle);
    r->handle = NULL;
}

static int ucx_descriptor(void *state)
{
    struct ls_ucx_group *g = state;
    int fd = -1;
    if (g->abandoned)
        return -1;
    while (ucp_worker_progress(g->worker))
        ;
    if (ucp_worker_arm(g->worker) != UCS_OK || ucp_worker_get_efd(g->worker, &fd) != UCS_OK)
        return -1;
    return fd;
}

static void library_name(char name[64])
{
    snprintf(name, 64, "UCX %.59s", ucp_get_version_string());
}

const struct ls_transport ls_transport_module = {
    .name = "ucx",
    .library = library_name,
    .open = ls_ucx_open,
    .close = ls_ucx_close,
    .send = ucx_send,
    .receive = ucx_receive,
    .test = ls_ucx_test,
    .cancel = ls_ucx_cancel,
    .descriptor = ucx_descriptor,
};
