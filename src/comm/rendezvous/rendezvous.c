#include "comm/rendezvous/rendezvous.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/wire.h"

#include <stdio.h>
#include <string.h>

enum { TRANSPORT = 8 /* bytes of its name, before each address */ };

void ls_rendezvous_missing(const struct ls_rendezvous *m, char *text, size_t room)
{
    int count = 0, written = 0;
    for (int i = 0; i < m->size; i++)
        count += !m->address[i].data;
    size_t used = (size_t)snprintf(text, room, count == 1 ? "rank" : "ranks");
    for (int i = 0; i < m->size && used < room; i++)
        if (!m->address[i].data) {
            const char *before = written == 0 ? " " : written + 1 == count ? " and " : ", ";
            used += (size_t)snprintf(text + used, room - used, "%s%d", before, i);
            if (++written == 16 && count > 17) {
                snprintf(text + used, room - used < room ? room - used : 0, " and %d more", count - written);
                return;
            }
        }
}

/* Fails without a token, unless rank 0 is at a loopback address. */
static enum ls_status check_token(const struct ls_launch *l, double until)
{
    struct addrinfo *list;
    LS_TRY(ls_wire_resolve(l->address, l->port, l->late_names ? until : 0, &list));
    bool here = true;
    for (struct addrinfo *a = list; a; a = a->ai_next)
        here = here && ls_wire_is_loopback(a->ai_addr);
    freeaddrinfo(list);
    if (here || l->token)
        return LS_OK;
    return ls_fail(LS_USAGE,
                   "%s: processes on several hosts need a secret that they share: set LOCKSTEP_TOKEN to the same text "
                   "for all (openssl rand -hex 16), or use --rendezvous file:///PATH",
                   l->address);
}

static enum ls_status exchange_addresses(const struct ls_launch *l, double until, struct ls_rendezvous *m)
{
    if (l->kind == LS_LAUNCH_FILE)
        return ls_rendezvous_file(l, until, m);
    LS_TRY(check_token(l, until));
    return m->rank == 0 ? ls_rendezvous_host(l, until, m) : ls_rendezvous_join(l, until, m);
}

/* Each address begins with the name of its transport. */
static enum ls_status compare_transports(struct ls_rendezvous *m, const char *own)
{
    for (int i = 0; i < m->size; i++) {
        struct ls_address *a = &m->address[i];
        if (a->bytes < TRANSPORT || memcmp(a->data, own, TRANSPORT) != 0)
            return ls_fail(LS_USAGE,
                           "rank %d was started with another --transport (or version) than rank %d; give all the same",
                           i, m->rank);
        a->bytes -= TRANSPORT;
        memmove(a->data, (char *)a->data + TRANSPORT, a->bytes);
    }
    return LS_OK;
}

enum ls_status ls_rendezvous_run(const struct ls_launch *launch, const char *transport, const void *address,
                                 size_t bytes, double until, struct ls_rendezvous *m)
{
    char name[TRANSPORT] = "";
    *m = (struct ls_rendezvous){.rank = launch->rank, .size = launch->size};
    if (bytes > LS_ADDRESS_LIMIT - TRANSPORT)
        return ls_fail(LS_FAILED,
                       "the network's address has %zu bytes, more than the %zu that are handed round; "
                       "choose one interface with UCX_NET_DEVICES",
                       bytes, LS_ADDRESS_LIMIT - TRANSPORT);
    memcpy(name, transport, strlen(transport));
    char *own = ls_alloc(TRANSPORT + bytes, 1);
    /* This process's address is stored behind the others until its rank is known. */
    m->address = ls_alloc((size_t)m->size + 1, sizeof *m->address);
    enum ls_status st = own && m->address ? LS_OK : LS_FAILED;
    if (st == LS_OK) {
        memcpy(own, name, TRANSPORT);
        memcpy(own + TRANSPORT, address, bytes);
        st = ls_rendezvous_set_address(m, m->size, own, TRANSPORT + bytes);
    }
    ls_free(own);
    if (st == LS_OK)
        st = exchange_addresses(launch, until, m);
    if (st == LS_OK)
        st = compare_transports(m, name);
    if (st != LS_OK)
        ls_rendezvous_release(m);
    return st;
}

void ls_rendezvous_release(struct ls_rendezvous *m)
{
    for (int i = 0; m->address && i <= m->size; i++)
        ls_free(m->address[i].data);
    ls_free(m->address);
    ls_free(m->folder);
    *m = (struct ls_rendezvous){0};
}
