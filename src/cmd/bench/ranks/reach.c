#define _GNU_SOURCE
#include "cmd/bench/ranks/reach.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAMES = 16, TRIES = 100, PATIENCE = 3000 /* milliseconds for a connection */ };
/* Ports of this range are not given to outgoing connections by default. */
enum { PORT_FIRST = 20000, PORTS = 10000 };

/* What rank 0 offers. */
struct offer {
    int32_t port, n;
    char names[NAMES][LS_REACH_NAME];
};

/* --- rank 0 --------------------------------------------------------------------------------------------- */

/* Listens on all interfaces. Returns -1 if the port is in use. */
static int listen_on(int port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int no = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (fd < 0 || bind(fd, (struct sockaddr *)&six, sizeof six) != 0) {
        bool in_use = fd >= 0 && errno == EADDRINUSE;
        if (fd >= 0)
            close(fd);
        fd = in_use ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four) != 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0 && listen(fd, 4096) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Listens on a port that is free. Returns the descriptor, or -1. */
static int listen_somewhere(int *port)
{
    for (int i = 0; i < TRIES; i++) {
        unsigned random;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return -1;
        *port = PORT_FIRST + (int)(random % PORTS);
        int fd = listen_on(*port);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

int ls_reach_free_port(void)
{
    int port, fd = listen_somewhere(&port);
    if (fd < 0)
        return 0;
    close(fd);
    return port;
}

static bool is_outward(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    return i->ifa_addr->sa_family == AF_INET ||
           (i->ifa_addr->sa_family == AF_INET6 &&
            !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr));
}

static void add_interfaces(struct offer *f)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return;
    for (struct ifaddrs *i = all; i && f->n < NAMES; i = i->ifa_next) {
        bool six = i->ifa_addr && i->ifa_addr->sa_family == AF_INET6;
        if (is_outward(i) && getnameinfo(i->ifa_addr, six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                                         f->names[f->n], LS_REACH_NAME, NULL, 0, NI_NUMERICHOST) == 0)
            f->n++;
    }
    freeifaddrs(all);
}

/* Returns the descriptor that listens. */
static int make_offer(const struct ls_world *w, struct offer *f)
{
    int nodes = 1, fd = listen_somewhere(&f->port);
    for (int r = 0; r < ls_comm_size(w->comm); r++)
        nodes = ls_comm_node(w->comm, r) >= nodes ? ls_comm_node(w->comm, r) + 1 : nodes;
    if (fd < 0)
        return fd;
    if (w->launch.kind == LS_LAUNCH_TCP && w->launch.address && strlen(w->launch.address) < LS_REACH_NAME)
        snprintf(f->names[f->n++], LS_REACH_NAME, "%s", w->launch.address);
    if (nodes == 1)
        snprintf(f->names[f->n++], LS_REACH_NAME, "127.0.0.1");
    else
        add_interfaces(f);
    return fd;
}

/* --- all ranks ------------------------------------------------------------------------------------------ */

static bool connects(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), why = 0;
    socklen_t size = sizeof why;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    bool good = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (fd >= 0 && !good && errno == EINPROGRESS)
        good = poll(&p, 1, PATIENCE) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) == 0 && why == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

static bool reaches(const char *name, int port)
{
    struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM};
    char text[16];
    bool good = false;
    snprintf(text, sizeof text, "%d", port);
    if (getaddrinfo(name, text, &hints, &list) != 0)
        return false;
    for (struct addrinfo *a = list; a && !good; a = a->ai_next)
        good = connects(a);
    freeaddrinfo(list);
    return good;
}

/* Chooses the first name that all ranks reach. `all` has a bit for each name that a rank reaches. */
static void choose(const struct offer *f, const uint32_t *all, int size, char *address, int *lost)
{
    uint32_t common = UINT32_MAX;
    *lost = 0;
    for (int r = 0; r < size; r++) {
        common &= all[r];
        if (__builtin_popcount(all[r]) < __builtin_popcount(all[*lost]))
            *lost = r;
    }
    address[0] = 0;
    for (int i = 0; i < f->n && !*address; i++)
        if (common >> i & 1)
            snprintf(address, LS_REACH_NAME, "%s", f->names[i]);
}

enum ls_status ls_reach_find(const struct ls_world *w, char address[LS_REACH_NAME], int *lost)
{
    int fd = -1, size = ls_comm_size(w->comm);
    struct offer *f = ls_alloc(1, sizeof *f);
    uint32_t mine = 0, *all = ls_alloc((size_t)size, sizeof *all);
    enum ls_status st = f && all ? LS_OK : LS_FAILED;
    if (st == LS_OK && ls_comm_rank(w->comm) == 0)
        fd = make_offer(w, f);
    ls_comm_allow(w->comm, 1e-3 * PATIENCE * (NAMES + 1));
    if (st == LS_OK)
        st = ls_comm_broadcast(w->comm, 0, f, sizeof *f);
    for (int i = 0; st == LS_OK && i < f->n; i++)
        mine |= (uint32_t)reaches(f->names[i], f->port) << i;
    if (st == LS_OK)
        st = ls_comm_allgather(w->comm, &mine, sizeof mine, all);
    if (st == LS_OK)
        choose(f, all, size, address, lost);
    if (fd >= 0)
        close(fd);
    ls_free(f);
    ls_free(all);
    return st;
}
