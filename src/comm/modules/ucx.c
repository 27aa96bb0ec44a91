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
 *   UCX-2  A message of a process that does not know the secret matches no receive. */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/device.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#define CLOSE_SECONDS 2.0
#define RANK_BITS 16

enum kind { DATA = 1, HELLO, GOODBYE };

struct peer {
    struct group *group; /* borrowed */
    ucp_ep_h endpoint;
    ucs_status_t lost; /* UCS_OK: it is there */
    uint8_t theirs[LS_PROOF];
    struct ls_transport_request sent, heard;
};

struct group {
    struct ls_rendezvous rendezvous;
    ucp_context_h context;
    ucp_worker_h worker;
    uint64_t secret;
    struct peer *peers;       /* owned; size of them */
    uint8_t *hellos;          /* owned; one proof for each */
    int rank, size, any_lost; /* any_lost: a rank, -1: none */
};

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

static enum ls_status explain(ucs_status_t code, const char *what)
{
    return ls_fail(LS_FAILED, "UCX: %s failed: %s", what, ucs_status_string(code));
}

/* --- messages -------------------------------------------------------------------------------------------- */

static ucp_tag_t tag_of(const struct group *g, enum kind kind, uint32_t tag, int sender)
{
    uint64_t name = ((uint64_t)kind << 32 | tag) ^ g->secret;
    return name << RANK_BITS | (uint64_t)sender;
}

/* The rank that is gone: the peer, or, for a receive from any rank, any. -1: none. */
static int lost_peer(const struct group *g, int peer)
{
    if (peer < 0)
        return g->any_lost;
    return g->peers[peer].lost != UCS_OK ? peer : -1;
}

static enum ls_status send_kind(struct group *g, enum kind kind, int peer, uint32_t tag, const void *data, size_t bytes,
                                struct ls_transport_request *request)
{
    const ucp_request_param_t param = {0};
    struct request *r = inside(request);
    *r = (struct request){.direction = SEND};
    request->peer = peer;
    request->bytes = bytes;
    if (lost_peer(g, peer) >= 0)
        return LS_PEER_LOST;
    void *handle = ucp_tag_send_nbx(g->peers[peer].endpoint, data, bytes, tag_of(g, kind, tag, g->rank), &param);
    if (UCS_PTR_IS_ERR(handle)) {
        r->status = UCS_PTR_STATUS(handle);
        return LS_PEER_LOST;
    }
    r->handle = handle;
    return LS_OK;
}

static enum ls_status receive_kind(struct group *g, enum kind kind, int peer, uint32_t tag, void *data, size_t room,
                                   struct ls_transport_request *request)
{
    /* UCX 1.13 reports the sender of a message only through a request, so that a receive must always have one. */
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    struct request *r = inside(request);
    ucp_tag_t mask = peer < 0 ? ~(((ucp_tag_t)1 << RANK_BITS) - 1) : ~(ucp_tag_t)0;
    *r = (struct request){.direction = RECEIVE};
    request->peer = peer;
    request->too_long = false;
    void *handle = ucp_tag_recv_nbx(g->worker, data, room, tag_of(g, kind, tag, peer < 0 ? 0 : peer), mask, &param);
    if (UCS_PTR_IS_ERR(handle))
        return explain(UCS_PTR_STATUS(handle), "a receive");
    r->handle = handle;
    return LS_OK;
}

static enum ls_status ucx_send(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                               struct ls_transport_request *request)
{
    return send_kind(state, DATA, peer, tag, data, bytes, request);
}

static enum ls_status ucx_receive(void *state, int peer, uint32_t tag, void *data, size_t room,
                                  struct ls_transport_request *request)
{
    return receive_kind(state, DATA, peer, tag, data, room, request);
}

static enum ls_status settle(struct group *g, struct ls_transport_request *request, ucs_status_t code,
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
            request->peer = (int)(info->sender_tag & (((ucp_tag_t)1 << RANK_BITS) - 1));
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
static enum ls_status ucx_test(void *state, struct ls_transport_request *request, bool *done)
{
    struct group *g = state;
    struct request *r = inside(request);
    ucp_tag_recv_info_t info = {0};
    *done = false;
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

/* UCX cannot cancel a send under way: its buffer must stay until the transport is closed. */
static void ucx_cancel(void *state, struct ls_transport_request *request)
{
    struct group *g = state;
    struct request *r = inside(request);
    if (!r->handle)
        return;
    ucp_request_cancel(g->worker, r->handle);
    ucp_request_free(r->handle);
    r->handle = NULL;
}

static int ucx_descriptor(void *state)
{
    struct group *g = state;
    int fd = -1;
    while (ucp_worker_progress(g->worker))
        ;
    if (ucp_worker_arm(g->worker) != UCS_OK || ucp_worker_get_efd(g->worker, &fd) != UCS_OK)
        return -1;
    return fd;
}

/* --- start ------------------------------------------------------------------------------------------- */

/* UCX writes to standard output; its messages go to log.txt instead. */
static ucs_log_func_rc_t keep_quiet(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                    const ucs_log_component_config_t *component, const char *message, va_list args)
{
    char text[512];
    (void)file, (void)line, (void)function, (void)component;
    if (level > UCS_LOG_LEVEL_WARN)
        return UCS_LOG_FUNC_RC_CONTINUE; /* the user set UCX_LOG_LEVEL */
    vsnprintf(text, sizeof text, message, args);
    ls_note("ucx: %s", text);
    return UCS_LOG_FUNC_RC_STOP;
}

static void on_error(void *argument, ucp_ep_h endpoint, ucs_status_t code)
{
    struct peer *p = argument;
    (void)endpoint;
    if (p->lost == UCS_OK)
        p->lost = code == UCS_OK ? UCS_ERR_CONNECTION_RESET : code;
    if (p->group->any_lost < 0)
        p->group->any_lost = (int)(p - p->group->peers);
}

/* UCX_* variables of the user take precedence. */
static void set_default(ucp_config_t *config, const char *name, const char *value)
{
    char variable[64];
    snprintf(variable, sizeof variable, "UCX_%s", name);
    if (!getenv(variable))
        ucp_config_modify(config, name, value);
}

static enum ls_status start_ucx(struct group *g, const struct ls_launch *l)
{
    ucp_config_t *config;
    char device[64];
    ucs_log_push_handler(keep_quiet);
    ucs_status_t code = ucp_config_read(NULL, NULL, &config);
    if (code != UCS_OK)
        return explain(code, "reading its configuration");
    set_default(config, "KEEPALIVE_INTERVAL", "1s"); /* a dead peer on this host is noticed in seconds */
    if (l->kind == LS_LAUNCH_TCP && ls_device_towards(l, device))
        set_default(config, "NET_DEVICES", device);
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = (size_t)l->size};
    code = ucp_init(&params, config, &g->context);
    ucp_config_release(config);
    if (code != UCS_OK)
        return explain(code, "ucp_init");
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    code = ucp_worker_create(g->context, &worker, &g->worker);
    return code == UCS_OK ? LS_OK : explain(code, "ucp_worker_create");
}

static enum ls_status find_others(struct group *g, struct ls_launch *l, double until)
{
    ucp_address_t *address;
    size_t bytes;
    ucs_status_t code = ucp_worker_get_address(g->worker, &address, &bytes);
    if (code != UCS_OK)
        return explain(code, "ucp_worker_get_address");
    enum ls_status st = ls_rendezvous_run(l, "ucx", address, bytes, until, &g->rendezvous);
    ucp_worker_release_address(g->worker, address);
    if (st != LS_OK)
        return st;
    l->rank = g->rank = g->rendezvous.rank;
    l->size = g->size = g->rendezvous.size;
    return LS_OK;
}

static enum ls_status connect_all(struct group *g)
{
    g->peers = ls_alloc((size_t)g->size, sizeof *g->peers);
    g->hellos = ls_alloc((size_t)g->size, LS_PROOF);
    if (!g->peers || !g->hellos)
        return LS_FAILED;
    for (int i = 0; i < g->size; i++) {
        struct peer *p = &g->peers[i];
        p->group = g;
        ucp_ep_params_t params = {
            .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
            .address = g->rendezvous.address[i].data,
            .err_mode = i == g->rank ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
            .err_handler = {on_error, p},
        };
        ucs_status_t code = ucp_ep_create(g->worker, &params, &p->endpoint);
        if (code != UCS_OK)
            return ls_fail(LS_PEER_LOST, "UCX: no way to rank %d: %s; UCX_NET_DEVICES and UCX_TLS choose the network",
                           i, ucs_status_string(code));
    }
    return LS_OK;
}

/* --- hellos and goodbyes --------------------------------------------------------------------------------- */

static void nap(void)
{
    struct timespec t = {.tv_nsec = 200000};
    nanosleep(&t, NULL);
}

/* Exchanges a message with each peer. Returns the number of peers with which that failed. */
static int exchange(struct group *g, enum kind kind, double until)
{
    int left = 0;
    for (int i = 0; i < g->size; i++) {
        struct peer *p = &g->peers[i];
        if (i == g->rank)
            continue;
        receive_kind(g, kind, i, 0, p->theirs, LS_PROOF, &p->heard);
        send_kind(g, kind, i, 0, g->hellos + i * LS_PROOF, LS_PROOF, &p->sent);
    }
    do {
        bool heard, sent;
        left = 0;
        for (int i = 0; i < g->size; i++) {
            struct peer *p = &g->peers[i];
            if (i == g->rank)
                continue;
            bool gone = ucx_test(g, &p->heard, &heard) != LS_OK || ucx_test(g, &p->sent, &sent) != LS_OK;
            left += gone || !heard || !sent;
            if (gone && kind == HELLO)
                return left;
        }
        if (left > 0)
            nap();
    } while (left > 0 && ls_now() < until && (kind == HELLO || g->any_lost < 0));
    return left;
}

static enum ls_status hello_of(const struct group *g, int from, int to, uint8_t proof[LS_PROOF])
{
    uint8_t ranks[8];
    for (int i = 0; i < 4; i++) {
        ranks[i] = (uint8_t)(from >> 8 * i);
        ranks[4 + i] = (uint8_t)(to >> 8 * i);
    }
    const struct ls_proof_part parts[] = {{ranks, sizeof ranks}, {NULL, 0}};
    return ls_proof_make(g->rendezvous.key, LS_PROOF, "hello", parts, proof);
}

static enum ls_status nobody_answers(struct group *g, double waited)
{
    for (int i = 0; i < g->size; i++) {
        struct peer *p = &g->peers[i];
        bool heard, sent;
        if (i == g->rank)
            continue;
        if (p->lost != UCS_OK)
            return ls_fail(LS_PEER_LOST,
                           "rank %d cannot be reached over UCX: %s; UCX_NET_DEVICES and UCX_TLS choose the "
                           "network",
                           i, ucs_status_string(p->lost));
        if (ucx_test(g, &p->heard, &heard) == LS_OK && ucx_test(g, &p->sent, &sent) == LS_OK && heard && sent)
            continue;
        return ls_fail(LS_PEER_LOST,
                       "rank %d came to the rendezvous, but its hello did not arrive within %.0f s; is there "
                       "a firewall? UCX_NET_DEVICES and UCX_TLS choose the network",
                       i, waited);
    }
    return ls_fail(LS_PEER_LOST, "UCX: the processes did not find each other within %.0f s", waited);
}

static enum ls_status say_hello(struct group *g, double until)
{
    uint8_t secret[LS_PROOF], right[LS_PROOF];
    const struct ls_proof_part none[] = {{NULL, 0}};
    double begun = ls_now();
    LS_TRY(ls_proof_make(g->rendezvous.key, LS_PROOF, "tags", none, secret));
    memcpy(&g->secret, secret, sizeof g->secret);
    g->secret &= ((uint64_t)1 << (64 - RANK_BITS)) - 1;
    for (int i = 0; i < g->size; i++)
        LS_TRY(hello_of(g, g->rank, i, g->hellos + i * LS_PROOF));
    if (exchange(g, HELLO, until) > 0)
        return nobody_answers(g, ls_now() - begun);
    for (int i = 0; i < g->size; i++) {
        LS_TRY(hello_of(g, i, g->rank, right));
        if (i != g->rank && (g->peers[i].heard.bytes != LS_PROOF || !ls_proof_same(right, g->peers[i].theirs)))
            return ls_fail(LS_PEER_LOST, "rank %d does not know the key of this run; is the token the same for all?",
                           i);
    }
    ls_rendezvous_clean(&g->rendezvous);
    return LS_OK;
}

/* --- open and close ----------------------------------------------------------------------------------- */

static void close_endpoints(struct group *g, bool graceful)
{
    const ucp_request_param_t param = {.op_attr_mask = graceful ? 0 : UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = graceful ? 0 : UCP_EP_CLOSE_FLAG_FORCE};
    double until = ls_now() + CLOSE_SECONDS;
    for (int i = 0; g->peers && i < g->size; i++) {
        if (!g->peers[i].endpoint)
            continue;
        void *closing = ucp_ep_close_nbx(g->peers[i].endpoint, &param);
        if (!UCS_PTR_IS_PTR(closing))
            continue;
        while (ucp_request_check_status(closing) == UCS_INPROGRESS && ls_now() < until)
            ucp_worker_progress(g->worker);
        ucp_request_free(closing);
    }
}

/* Every rank says goodbye and waits for all goodbyes before it closes: messages under way still arrive. */
static void ucx_close(void *state, bool graceful)
{
    struct group *g = state;
    bool together = graceful && g->peers && g->hellos && exchange(g, GOODBYE, ls_now() + CLOSE_SECONDS) == 0;
    for (int i = 0; g->peers && i < g->size && !together; i++) {
        ucx_cancel(g, &g->peers[i].heard);
        ucx_cancel(g, &g->peers[i].sent);
    }
    close_endpoints(g, together);
    if (g->worker)
        ucp_worker_destroy(g->worker);
    if (g->context)
        ucp_cleanup(g->context);
    ucs_log_pop_handler();
    ls_rendezvous_release(&g->rendezvous);
    ls_free(g->peers);
    ls_free(g->hellos);
    ls_free(g);
}

static enum ls_status ucx_open(struct ls_launch *launch, double deadline, void **state)
{
    enum ls_status st;
    double until = ls_now() + deadline;
    struct group *g = ls_alloc(1, sizeof *g);
    if (!g)
        return LS_FAILED;
    g->any_lost = -1;
    LS_TRY_GOTO(close_group, start_ucx(g, launch));
    LS_TRY_GOTO(close_group, find_others(g, launch, until));
    LS_TRY_GOTO(close_group, connect_all(g));
    LS_TRY_GOTO(close_group, say_hello(g, ls_now() + deadline));
    *state = g;
    return LS_OK;
close_group:
    ucx_close(g, false);
    return st;
}

static void library_name(char name[64])
{
    snprintf(name, 64, "UCX %.59s", ucp_get_version_string());
}

const struct ls_transport ls_transport_module = {
    .name = "ucx",
    .library = library_name,
    .open = ucx_open,
    .close = ucx_close,
    .send = ucx_send,
    .receive = ucx_receive,
    .test = ucx_test,
    .cancel = ucx_cancel,
    .descriptor = ucx_descriptor,
};
