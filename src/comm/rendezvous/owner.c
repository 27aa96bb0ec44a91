/* TCP has no peer credentials, but the kernel lists all TCP sockets of this network namespace with their users. The other
 * end of a connection is the socket with the same two addresses, exchanged. */
#define _GNU_SOURCE
#include "comm/rendezvous/owner.h"

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESS = 64 };

/* The form of /proc/net/tcp: the words of the address as numbers in host order, and the port. */
static bool as_listed(const struct sockaddr_storage *a, bool six, char text[ADDRESS])
{
    uint32_t words[4] = {0, 0, htonl(0xffff), 0};
    uint16_t port;
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)a;
        memcpy(&words[3], &four->sin_addr, 4);
        port = ntohs(four->sin_port);
    } else if (a->ss_family == AF_INET6) {
        memcpy(words, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
        port = ntohs(((const struct sockaddr_in6 *)(const void *)a)->sin6_port);
    } else
        return false;
    bool mapped = words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff);
    if (six)
        snprintf(text, ADDRESS, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3], port);
    else
        snprintf(text, ADDRESS, "%08X:%04X", words[3], port);
    return six || mapped;
}

/* Finds the socket in the list, and its user. */
static bool look_up(const char *path, const char *local, const char *remote, unsigned *user)
{
    char line[512], from[ADDRESS], to[ADDRESS];
    bool found = false;
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, " %*d: %63s %63s %*x %*s %*s %*s %u", from, to, user) == 3 && strcmp(from, local) == 0 &&
                strcmp(to, remote) == 0;
    if (f)
        fclose(f);
    return found;
}

bool ls_owner_is_same_user(int socket)
{
    struct sockaddr_storage own, peer;
    socklen_t n = sizeof own, m = sizeof peer;
    char local[ADDRESS], remote[ADDRESS];
    unsigned user;
    if (getsockname(socket, (struct sockaddr *)&own, &n) != 0 || getpeername(socket, (struct sockaddr *)&peer, &m) != 0)
        return false;
    for (int six = 0; six < 2; six++)
        if (as_listed(&peer, six, local) && as_listed(&own, six, remote) &&
            look_up(six ? "/proc/self/net/tcp6" : "/proc/self/net/tcp", local, remote, &user))
            return user == geteuid();
    return false;
}
