/* The port on which rank 0 of a rendezvous over TCP waits for the others. */
#define _GNU_SOURCE
#include "base/log.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 0, or the error. */
static int try_listen(const struct sockaddr *address, socklen_t length, int *listener)
{
    int one = 1, fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, length) != 0 || listen(fd, 512) != 0) {
        int why = errno;
        close(fd);
        return why;
    }
    *listener = fd;
    return 0;
}

/* On every interface, protected by the token. Many Linux hosts resolve their own name to 127.0.1.1; rank 0 would then
 * listen where the others do not find it. */
static int listen_everywhere(int port, int *listener)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (try_listen((struct sockaddr *)&six, sizeof six, listener) == 0)
        return 0;
    return try_listen((struct sockaddr *)&four, sizeof four, listener);
}

enum ls_status ls_rendezvous_listen(const struct ls_launch *l, int *listener)
{
    struct addrinfo *list;
    int why = EADDRNOTAVAIL;
    *listener = -1;
    bool only_here = !l->token || ls_wire_means_loopback(l->address);
    LS_TRY(ls_wire_resolve(l->address, l->port, 0, &list));
    for (struct addrinfo *a = list; a && *listener < 0 && why != EADDRINUSE; a = a->ai_next)
        if (only_here || !ls_wire_is_loopback(a->ai_addr))
            why = try_listen(a->ai_addr, a->ai_addrlen, listener);
    freeaddrinfo(list);
    if (*listener < 0 && why == EADDRNOTAVAIL && !only_here)
        why = listen_everywhere(l->port, listener);
    if (*listener >= 0)
        return LS_OK;
    if (why == EADDRINUSE)
        return ls_fail(LS_USAGE,
                       "%s:%d: the port is in use, by another run perhaps; give all ranks another "
                       "--master-port",
                       l->address, l->port);
    return ls_fail(LS_USAGE, "%s:%d: rank 0 cannot listen there: %s; is that this host's address?", l->address, l->port,
                   strerror(why));
}
