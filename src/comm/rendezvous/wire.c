#define _GNU_SOURCE
#include "comm/rendezvous/wire.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS 200000000L

static const uint8_t magic[4] = {'L', 'S', 'M', '1'};

void ls_put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

uint32_t ls_get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void ls_wire_init(struct ls_wire *w, int fd)
{
    *w = (struct ls_wire){.fd = fd};
}

void ls_wire_release(struct ls_wire *w)
{
    if (w->fd >= 0)
        close(w->fd);
    ls_free(w->body);
    ls_wire_init(w, -1);
}

int ls_wire_timeout_ms(double until)
{
    double left = until - ls_now();
    return left <= 0 ? 0 : left > 1 ? 1000 : (int)(1000 * left) + 1;
}

/* --- reading --------------------------------------------------------------------------------------------- */

/* The head is complete: checks it and takes memory for the body. */
static enum ls_wire_state open_body(struct ls_wire *w)
{
    w->kind = (enum ls_frame)ls_get32(w->head + 4);
    w->length = ls_get32(w->head + 8);
    size_t limit = w->kind == LS_FRAME_REFUSE ? LS_TEXT_LIMIT : w->limit;
    if (memcmp(w->head, magic, sizeof magic) != 0 || w->length > limit)
        return LS_WIRE_JUNK;
    ls_free(w->body);
    w->body = ls_alloc(w->length + 1, 1);
    return w->body ? LS_WIRE_MORE : LS_WIRE_JUNK;
}

enum ls_wire_state ls_wire_read(struct ls_wire *w)
{
    for (;;) {
        bool in_head = w->got < LS_FRAME_HEAD;
        size_t end = in_head ? LS_FRAME_HEAD : LS_FRAME_HEAD + w->length;
        uint8_t *at = in_head ? w->head + w->got : w->body + (w->got - LS_FRAME_HEAD);
        if (!in_head && w->got == end) {
            w->got = 0;
            return LS_WIRE_FRAME;
        }
        ssize_t n = recv(w->fd, at, end - w->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LS_WIRE_MORE;
        if (n <= 0)
            return LS_WIRE_GONE;
        w->got += (size_t)n;
        if (in_head && w->got == LS_FRAME_HEAD && open_body(w) != LS_WIRE_MORE)
            return LS_WIRE_JUNK;
    }
}

enum ls_wire_state ls_wire_wait(struct ls_wire *w, size_t limit, double until)
{
    w->limit = limit;
    for (;;) {
        enum ls_wire_state state = ls_wire_read(w);
        if (state != LS_WIRE_MORE || ls_now() >= until)
            return state;
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        poll(&p, 1, ls_wire_timeout_ms(until));
    }
}

/* --- writing --------------------------------------------------------------------------------------------- */

static bool write_all(int fd, const uint8_t *data, size_t bytes, double until)
{
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (ls_now() >= until)
                return false;
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            poll(&p, 1, ls_wire_timeout_ms(until));
        } else if (n == 0 || errno != EINTR)
            return false;
    }
    return true;
}

bool ls_wire_write(struct ls_wire *w, enum ls_frame kind, const void *body, size_t bytes, double until)
{
    uint8_t head[LS_FRAME_HEAD];
    memcpy(head, magic, sizeof magic);
    ls_put32(head + 4, (uint32_t)kind);
    ls_put32(head + 8, (uint32_t)bytes);
    return write_all(w->fd, head, sizeof head, until) && write_all(w->fd, body, bytes, until);
}

/* --- addresses ------------------------------------------------------------------------------------------- */

enum ls_status ls_wire_resolve(const char *host, int port, double until, struct addrinfo **list)
{
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(host, service, &hints, list);
    for (; code != 0 && ls_now() < until; code = getaddrinfo(host, service, &hints, list))
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    if (code != 0)
        return ls_fail(LS_USAGE, "%s: the host of rank 0 is not known here: %s; give its address as --master-ip", host,
                       gai_strerror(code));
    return LS_OK;
}

bool ls_wire_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

bool ls_wire_means_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

void ls_wire_name(const struct sockaddr *address, socklen_t length, char text[64])
{
    if (getnameinfo(address, length, text, 64, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(text, 64, "an unknown address");
}
