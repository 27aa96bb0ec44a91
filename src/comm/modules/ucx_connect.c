/* Connecting all ranks over UCX, and closing. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "comm/modules/ucx_group.h"

#include <string.h>
#include <time.h>
#include <ucs/debug/log_def.h>

#define CLOSE_SECONDS 2.0

static enum ls_status find_others(struct ls_ucx_group *g, struct ls_launch *l, double until)
{
    ucp_address_t *address;
    size_t bytes;
    ucs_status_t code = ucp_worker_get_address(g->worker, &address, &bytes);
    if (code != UCS_OK)
        return ls_ucx_fail(code, "ucp_worker_get_address");
    enum ls_status st = ls_rendezvous_run(l, "ucx", address, bytes, until, &g->rendezvous);
    ucp_worker_release_address(g->worker, address);
    if (st != LS_OK)
        return st;
    l->rank = g->rank = g->rendezvous.rank;
    l->size = g->size = g->rendezvous.size;
    return LS_OK;
}

static void on_error(void *argument, ucp_ep_h endpoint, ucs_status_t code)
{
    struct ls_ucx_peer *p = argument;
    (void)endpoint;
    if (p->lost == UCS_OK)
        p->lost = code == UCS_OK ? UCS_ERR_CONNECTION_RESET : code;
    if (p->group->any_lost < 0)
        p->group->any_lost = (int)(p - p->group->peers);
}

static enum ls_status report_unreachable(const struct ls_ucx_group *g, int rank, ucs_status_t code)
{
    if (code == UCS_ERR_UNREACHABLE && !g->may_listen)
        return ls_fail(LS_USAGE,
                       "--transport ucx: UCX finds no RDMA device that leads to rank %d. Leave out --transport, or let "
                       "UCX use TCP with --allow-unprotected-ucx: then anybody who reaches its ports can end the run",
                       rank);
    return ls_fail(LS_PEER_LOST, "UCX: no way to rank %d: %s; UCX_NET_DEVICES and UCX_TLS choose the network", rank,
                   ucs_status_string(code));
}

static enum ls_status connect_all(struct ls_ucx_group *g)
{
    g->peers = ls_alloc((size_t)g->size, sizeof *g->peers);
    g->hellos = ls_alloc((size_t)g->size, LS_PROOF);
    if (!g->peers || !g->hellos)
        return LS_FAILED;
    for (int i = 0; i < g->size; i++) {
        struct ls_ucx_peer *p = &g->peers[i];
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
            return report_unreachable(g, i, code);
    }
    return LS_OK;
}

/* --- hellos and goodbyes --------------------------------------------------------------------------------- */

static void sleep_briefly(void)
{
    struct timespec t = {.tv_nsec = 200000};
    nanosleep(&t, NULL);
}

/* Exchanges a message with each peer. Returns the number of peers with which that failed. */
static int exchange(struct ls_ucx_group *g, enum ls_ucx_kind kind, double until)
{
    int left = 0;
    for (int i = 0; i < g->size; i++) {
        struct ls_ucx_peer *p = &g->peers[i];
        if (i == g->rank)
            continue;
        ls_ucx_receive(g, kind, i, 0, p->theirs, LS_PROOF, &p->heard);
        ls_ucx_send(g, kind, i, 0, g->hellos + i * LS_PROOF, LS_PROOF, &p->sent);
    }
    do {
        bool heard, sent;
        left = 0;
        for (int i = 0; i < g->size; i++) {
            struct ls_ucx_peer *p = &g->peers[i];
            if (i == g->rank)
                continue;
            bool gone = ls_ucx_test(g, &p->heard, &heard) != LS_OK || ls_ucx_test(g, &p->sent, &sent) != LS_OK;
            left += gone || !heard || !sent;
            if (gone && kind == LS_UCX_HELLO)
                return left;
        }
        if (left > 0)
            sleep_briefly();
    } while (left > 0 && ls_now() < until && (kind == LS_UCX_HELLO || g->any_lost < 0));
    return left;
}

static enum ls_status hello_of(const struct ls_ucx_group *g, int from, int to, uint8_t proof[LS_PROOF])
{
    uint8_t ranks[8];
    for (int i = 0; i < 4; i++) {
        ranks[i] = (uint8_t)(from >> 8 * i);
        ranks[4 + i] = (uint8_t)(to >> 8 * i);
    }
    const struct ls_proof_part parts[] = {{ranks, sizeof ranks}, {NULL, 0}};
    return ls_proof_make(g->rendezvous.key, LS_PROOF, "hello", parts, proof);
}

static enum ls_status report_unanswered(struct ls_ucx_group *g, double waited)
{
    for (int i = 0; i < g->size; i++) {
        struct ls_ucx_peer *p = &g->peers[i];
        bool heard, sent;
        if (i == g->rank)
            continue;
        if (p->lost != UCS_OK)
            return ls_fail(LS_PEER_LOST,
                           "rank %d cannot be reached over UCX: %s; UCX_NET_DEVICES and UCX_TLS choose the "
                           "network",
                           i, ucs_status_string(p->lost));
        if (ls_ucx_test(g, &p->heard, &heard) == LS_OK && ls_ucx_test(g, &p->sent, &sent) == LS_OK && heard && sent)
            continue;
        return ls_fail(LS_PEER_LOST,
                       "rank %d came to the rendezvous, but its hello did not arrive within %.0f s; is there "
                       "a firewall? UCX_NET_DEVICES and UCX_TLS choose the network",
                       i, waited);
    }
    return ls_fail(LS_PEER_LOST, "UCX: the processes did not find each other within %.0f s", waited);
}

static enum ls_status exchange_hellos(struct ls_ucx_group *g, double until)
{
    uint8_t secret[LS_PROOF], right[LS_PROOF];
    const struct ls_proof_part none[] = {{NULL, 0}};
    double begun = ls_now();
    LS_TRY(ls_proof_make(g->rendezvous.key, LS_PROOF, "tags", none, secret));
    memcpy(&g->secret, secret, sizeof g->secret);
    g->secret &= ((uint64_t)1 << (64 - LS_UCX_RANK_BITS)) - 1;
    for (int i = 0; i < g->size; i++)
        LS_TRY(hello_of(g, g->rank, i, g->hellos + i * LS_PROOF));
    if (exchange(g, LS_UCX_HELLO, until) > 0)
        return report_unanswered(g, ls_now() - begun);
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

static void close_endpoints(struct ls_ucx_group *g, bool graceful)
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

static void close_ucx(struct ls_ucx_group *g, bool graceful)
{
    close_endpoints(g, graceful);
    if (g->worker)
        ucp_worker_destroy(g->worker);
    if (g->context)
        ucp_cleanup(g->context);
}

/* Every rank sends a goodbye and waits for those of all others before it closes, so that messages under way still arrive. */
void ls_ucx_close(void *state, bool graceful)
{
    struct ls_ucx_group *g = state;
    bool together = graceful && g->peers && g->hellos && exchange(g, LS_UCX_GOODBYE, ls_now() + CLOSE_SECONDS) == 0;
    for (int i = 0; g->peers && i < g->size && !together; i++) {
        ls_ucx_cancel(g, &g->peers[i].heard);
        ls_ucx_cancel(g, &g->peers[i].sent);
    }
    if (!g->abandoned) /* otherwise its memory and connections stay until the process ends */
        close_ucx(g, together);
    ucs_log_pop_handler();
    ls_rendezvous_release(&g->rendezvous);
    ls_free(g->peers);
    ls_free(g->hellos);
    ls_free(g);
}

enum ls_status ls_ucx_open(struct ls_launch *launch, double deadline, void **state)
{
    enum ls_status st;
    double until = ls_now() + deadline;
    struct ls_ucx_group *g = ls_alloc(1, sizeof *g);
    if (!g)
        return LS_FAILED;
    g->any_lost = -1;
    LS_TRY_GOTO(close_group, ls_ucx_start(g, launch));
    LS_TRY_GOTO(close_group, find_others(g, launch, until));
    LS_TRY_GOTO(close_group, connect_all(g));
    LS_TRY_GOTO(close_group, exchange_hellos(g, ls_now() + deadline));
    *state = g;
    return LS_OK;
close_group:
    ls_ucx_close(g, false);
    return st;
}
