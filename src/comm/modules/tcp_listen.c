/* The socket on which a rank waits for the connections of higher ranks, and its addresses. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "comm/modules/tcp.h"
#include "comm/rendezvous/device.h"
#include "comm/rendezvous/wire.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void ls_tcp_set_port(struct sockaddr_storage *a, uint16_t port)
{
    if (a->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)a)->sin_port = port;
    else
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = port;
}

uint16_t ls_tcp_port(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? ((const struct sockaddr_in *)(const void *)a)->sin_port
                                   : ((const struct sockaddr_in6 *)(const void *)a)->sin6_port;
}

static enum ls_status listen_at(const struct sockaddr *address, socklen_t length, int *listener)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, address, length) != 0 || listen(fd, 1024) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        errno = why;
        return LS_FAILED;
    }
    *listener = fd;
    return LS_OK;
}

/* Link-local addresses mean nothing on another host. */
static bool is_endpoint(const struct sockaddr *a)
{
    if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6))
        return false;
    return a->sa_family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static void add_endpoint(struct ls_tcp_listener *d, const struct sockaddr *a)
{
    uint8_t *at = d->text + d->bytes;
    if (d->bytes + LS_TCP_ENDPOINT > 4 + LS_TCP_ENDPOINTS * LS_TCP_ENDPOINT)
        return;
    at[0] = a->sa_family == AF_INET ? 4 : 6;
    if (a->sa_family == AF_INET)
        memcpy(at + 1, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    else
        memcpy(at + 1, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    d->bytes += LS_TCP_ENDPOINT;
}

static void add_all_endpoints(struct ls_tcp_listener *d, bool four_only)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return;
    for (int inner = 0; inner < 2; inner++) /* loopback addresses last */
        for (struct ifaddrs *i = all; i; i = i->ifa_next)
            if (is_endpoint(i->ifa_addr) && (i->ifa_flags & IFF_UP) &&
                ls_wire_is_loopback(i->ifa_addr) == (inner == 1) && (!four_only || i->ifa_addr->sa_family == AF_INET))
                add_endpoint(d, i->ifa_addr);
    freeifaddrs(all);
}

static enum ls_status listen_everywhere(struct ls_tcp_listener *d)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET};
    bool four_only = listen_at((struct sockaddr *)&six, sizeof six, &d->socket) != LS_OK;
    if (four_only)
        LS_TRY(listen_at((struct sockaddr *)&four, sizeof four, &d->socket));
    add_all_endpoints(d, four_only);
    return LS_OK;
}

enum ls_status ls_tcp_listen(const struct ls_launch *l, struct ls_tcp_listener *d)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    enum ls_status st;
    *d = (struct ls_tcp_listener){.socket = -1, .bytes = 4};
    d->text = ls_alloc(4 + LS_TCP_ENDPOINTS * LS_TCP_ENDPOINT, 1);
    if (!d->text)
        return LS_FAILED;
    if (l->kind == LS_LAUNCH_TCP && ls_device_address(l, &own)) {
        ls_tcp_set_port(&own, 0);
        st = listen_at((struct sockaddr *)&own,
                       own.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6), &d->socket);
        add_endpoint(d, (struct sockaddr *)&own);
    } else
        st = listen_everywhere(d);
    if (st != LS_OK || getsockname(d->socket, (struct sockaddr *)&own, &length) != 0)
        return ls_fail(LS_FAILED, "this process cannot listen for the others: %s", strerror(errno));
    ls_put32(d->text, ntohs(ls_tcp_port(&own)));
    return LS_OK;
}

void ls_tcp_close_listener(struct ls_tcp_listener *d)
{
    if (d->socket >= 0)
        close(d->socket);
    ls_free(d->text);
    *d = (struct ls_tcp_listener){.socket = -1};
}
