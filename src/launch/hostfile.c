#define _GNU_SOURCE
#include "launch/hostfile.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <ctype.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LARGEST_FILE = 1 << 24, MOST_SLOTS = 4096 };

/* --- reading --------------------------------------------------------------------------------------------- */

/* Returns a number of 1 to MOST_SLOTS, or 0. */
static int slots_of(const char *text)
{
    char *end;
    long n = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    return n >= 1 && n <= MOST_SLOTS && !*end ? (int)n : 0;
}

/* Other settings of Open MPI and MPICH, which say nothing about the number of processes. */
static bool is_other_setting(const char *word)
{
    static const char *const names[] = {"max_slots=", "max-slots=", "ifname=", "binding=", "user=", "username="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(word, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Cuts ":4" from "node2:4" and "[fe80::1]:4", and the brackets. An address of IPv6 without brackets has no number. */
static bool cut_name(char **name, int *slots)
{
    char *bracket = **name == '[' ? strchr(*name, ']') : NULL, *colon = strrchr(*name, ':');
    bool single = colon && colon == strchr(*name, ':'), behind = bracket && colon && colon == bracket + 1;
    if (single || behind) {
        *slots = slots_of(colon + 1);
        if (*slots == 0)
            return false;
        *colon = 0;
    }
    if (bracket) {
        *bracket = 0;
        ++*name;
    }
    return **name != 0;
}

static enum ls_status add_host(struct ls_hostfile *h, const char *name, int slots, int line)
{
    for (int i = 0; i < h->n; i++)
        if (strcasecmp(h->hosts[i].name, name) == 0) {
            h->hosts[i].slots += slots;
            return LS_OK;
        }
    if ((h->n & (h->n - 1)) == 0) { /* grows at each power of two */
        size_t room = h->n ? 2 * (size_t)h->n : 1;
        struct ls_hostfile_host *larger = ls_realloc(h->hosts, (size_t)h->n, room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        h->hosts = larger;
    }
    h->hosts[h->n++] = (struct ls_hostfile_host){name, slots, line};
    return LS_OK;
}

static enum ls_status read_line(struct ls_hostfile *h, const char *path, int line, char *text)
{
    static const char blanks[] = " \t\r";
    char *rest = NULL, *name = strtok_r(text, blanks, &rest), *word;
    int slots = 1;
    if (!name)
        return LS_OK;
    if (!cut_name(&name, &slots))
        return ls_fail(LS_BAD_INPUT, "%s:%d: '%s'; expected HOST, HOST:N or HOST slots=N, with N from 1 to %d", path,
                       line, name, MOST_SLOTS);
    while ((word = strtok_r(NULL, blanks, &rest))) {
        bool given = strncmp(word, "slots=", 6) == 0;
        if (given)
            slots = slots_of(word + 6);
        if (slots == 0 || (!given && !is_other_setting(word)))
            return ls_fail(LS_BAD_INPUT, "%s:%d: '%s' behind the host %s; expected slots=N, with N from 1 to %d", path,
                           line, word, name, MOST_SLOTS);
    }
    return add_host(h, name, slots, line);
}

enum ls_status ls_hostfile_read(const char *path, struct ls_hostfile *h)
{
    size_t size;
    int line = 1;
    *h = (struct ls_hostfile){0};
    enum ls_status st = ls_file_read(path, LARGEST_FILE, &h->text, &size);
    char *at = st == LS_OK ? h->text : NULL;
    if (at && strlen(at) != size)
        st = ls_fail(LS_BAD_INPUT, "%s: a zero byte at offset %zu; expected a text file with a host on each line", path,
                     strlen(at));
    for (; at && st == LS_OK; line++) {
        char *end = strchr(at, '\n');
        if (end)
            *end = 0;
        at[strcspn(at, "#")] = 0;
        st = read_line(h, path, line, at);
        at = end ? end + 1 : NULL;
    }
    if (st == LS_OK && h->n == 0)
        st = ls_fail(LS_BAD_INPUT, "%s: no hosts; expected HOST, HOST:N or HOST slots=N on each line", path);
    if (st != LS_OK)
        ls_hostfile_release(h);
    return st;
}

void ls_hostfile_release(struct ls_hostfile *h)
{
    ls_free(h->hosts);
    ls_free(h->text);
    *h = (struct ls_hostfile){0};
}

/* --- this host ------------------------------------------------------------------------------------------- */

/* Compares names; one without a domain is equal to the same name with any. */
static bool same_name(const char *a, const char *b)
{
    size_t short_a = strcspn(a, "."), short_b = strcspn(b, ".");
    if (strcasecmp(a, b) == 0)
        return true;
    return short_a == short_b && strncasecmp(a, b, short_a) == 0 && (!a[short_a] || !b[short_b]);
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!b || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* True if the host has an address of an interface of this machine. */
static bool has_address(const char *name, const struct ifaddrs *interfaces)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    bool found = false;
    if (getaddrinfo(name, NULL, &hints, &list) != 0)
        return false;
    for (const struct addrinfo *a = list; a && !found; a = a->ai_next)
        for (const struct ifaddrs *i = interfaces; i && !found; i = i->ifa_next)
            found = same_address(a->ai_addr, i->ifa_addr);
    freeaddrinfo(list);
    return found;
}

/* Counts the hosts that are this one; *host is the last of them. */
static int count_matches(const struct ls_hostfile *h, const char *own, const struct ifaddrs *interfaces, int *host)
{
    int n = 0;
    for (int i = 0; i < h->n; i++)
        if (interfaces ? has_address(h->hosts[i].name, interfaces) : same_name(h->hosts[i].name, own)) {
            *host = i;
            n++;
        }
    return n;
}

enum ls_status ls_hostfile_find_this(const struct ls_hostfile *h, const char *path, int *host)
{
    char own[256] = "";
    struct ifaddrs *interfaces = NULL;
    if (gethostname(own, sizeof own - 1) != 0)
        own[0] = 0;
    int n = count_matches(h, own, NULL, host);
    if (n == 0 && getifaddrs(&interfaces) == 0) {
        n = count_matches(h, own, interfaces, host);
        freeifaddrs(interfaces);
    }
    if (n == 1)
        return LS_OK;
    if (n == 0)
        return ls_fail(LS_USAGE, "%s: this host, %s, is not one of its %d host%s; add it, or give --rank, 0 to %d",
                       path, own, h->n, h->n == 1 ? "" : "s", h->n - 1);
    return ls_fail(LS_USAGE, "%s: %d of its hosts are this one, %s; give --rank, 0 to %d, to say which is meant", path,
                   n, own, h->n - 1);
}
