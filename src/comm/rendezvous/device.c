#define _GNU_SOURCE
#include "comm/rendezvous/device.h"
#include "comm/rendezvous/wire.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The local address of a route: connecting a datagram socket finds it and sends nothing. */
static bool own_address(const struct addrinfo *a, struct sockaddr_storage *own)
{
    socklen_t length = sizeof *own;
    int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool good = connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)own, &length) == 0;
    close(fd);
    return good;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 && memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                                              &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16) == 0;
}

static bool device_of(const struct sockaddr *own, char name[64])
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        found = same_address(i->ifa_addr, own);
        if (found)
            snprintf(name, 64, "%s", i->ifa_name);
    }
    freeifaddrs(all);
    return found;
}

bool ls_device_has_rdma(void)
{
    int n = 0;
    DIR *dir = opendir("/sys/class/infiniband");
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n > 0;
}

/* A host whose name resolves to 127.0.1.1 has no name for its outer address. The address 127.0.0.1 given by the user does
 * mean loopback. */
bool ls_device_address(const struct ls_launch *l, struct sockaddr_storage *own)
{
    struct addrinfo *list, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    bool found = false;
    if (getaddrinfo(l->address, "9", &hints, &list) != 0)
        return false;
    for (struct addrinfo *a = list; a && !found; a = a->ai_next) {
        bool elsewhere = ls_wire_is_loopback(a->ai_addr) && l->token && !ls_wire_means_loopback(l->address);
        found = !elsewhere && own_address(a, own);
    }
    freeaddrinfo(list);
    return found;
}

bool ls_device_towards(const struct ls_launch *l, char name[64])
{
    struct sockaddr_storage own;
    return !ls_device_has_rdma() && ls_device_address(l, &own) && device_of((struct sockaddr *)&own, name);
}
