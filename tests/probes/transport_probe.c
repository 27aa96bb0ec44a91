/* One process of several that try a transport as the launch asks for it: for tests/cli/test-launch.sh.
 *
 *     transport_probe CASE [options of train]
 *
 * Every rank checks what it gets and ends with 0 when all was right. The module is looked for in LOCKSTEP_MODULES. */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/transport.h"

#include <dirent.h>
#include <dlfcn.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 60.0

struct probe {
    const struct ls_transport *t;
    void *state;
    int rank, size;
};

static enum ls_status load(const struct ls_launch *l, const struct ls_transport **t)
{
    const char *folder = getenv("LOCKSTEP_MODULES");
    char path[4096];
    if (l->kind == LS_LAUNCH_MPI)
        snprintf(path, sizeof path, "%s/lockstep-mpi-%s.so", folder ? folder : ".", l->mpi);
    else
        snprintf(path, sizeof path, "%s/lockstep-%s.so", folder ? folder : ".", l->transport);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    *t = module ? dlsym(module, "ls_transport_module") : NULL;
    return *t ? LS_OK : ls_fail(LS_FAILED, "%s", dlerror());
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = 50000};
    nanosleep(&t, NULL);
}

/* Sleeps where the transport can. */
static enum ls_status wait_for(struct probe *p, struct ls_transport_request *r)
{
    double until = ls_now() + PATIENCE;
    for (bool done = false; !done;) {
        LS_TRY(p->t->test(p->state, r, &done));
        if (done)
            break;
        if (ls_now() > until)
            return ls_fail(LS_FAILED, "rank %d: nothing came from %d", p->rank, r->peer);
        int fd = p->t->descriptor ? p->t->descriptor(p->state) : -1;
        struct pollfd waiting = {.fd = fd, .events = POLLIN};
        if (p->t->descriptor && fd >= 0)
            poll(&waiting, 1, 1000);
        else if (!p->t->descriptor)
            nap();
    }
    return LS_OK;
}

static enum ls_status barrier(struct probe *p, uint32_t tag)
{
    struct ls_transport_request s, r;
    for (int d = 1; d < p->size; d *= 2) {
        LS_TRY(p->t->receive(p->state, (p->rank - d + p->size) % p->size, tag, NULL, 0, &r));
        LS_TRY(p->t->send(p->state, (p->rank + d) % p->size, tag, NULL, 0, &s));
        LS_TRY(wait_for(p, &s));
        LS_TRY(wait_for(p, &r));
    }
    return LS_OK;
}

static uint8_t pattern(int from, int to, size_t at)
{
    return (uint8_t)((size_t)(from * 31 + to * 7) + at + (at >> 8) + (at >> 16));
}

/* --- the cases ------------------------------------------------------------------------------------------- */

static enum ls_status all_pairs(struct probe *p, size_t bytes, size_t room, uint32_t tag)
{
    size_t n = (size_t)p->size;
    struct ls_transport_request *r = ls_alloc(2 * n, sizeof *r);
    uint8_t *in = ls_alloc(n * room + 1, 1), *out = ls_alloc(n * bytes + 1, 1);
    if (!r || !in || !out)
        return LS_FAILED;
    for (int i = 0; i < p->size; i++) {
        for (size_t k = 0; k < bytes; k++)
            out[(size_t)i * bytes + k] = pattern(p->rank, i, k);
        LS_TRY(p->t->receive(p->state, i, tag, in + (size_t)i * room, room, &r[i]));
        LS_TRY(p->t->send(p->state, i, tag, out + (size_t)i * bytes, bytes, &r[p->size + i]));
    }
    for (int i = 0; i < 2 * p->size; i++)
        LS_TRY(wait_for(p, &r[i]));
    for (int i = 0; i < p->size; i++) {
        if (r[i].bytes != bytes || r[i].peer != i)
            return ls_fail(LS_FAILED, "rank %d: %zu bytes from %d, not %zu from %d", p->rank, r[i].bytes, r[i].peer,
                           bytes, i);
        for (size_t k = 0; k < bytes; k++)
            if (in[(size_t)i * room + k] != pattern(i, p->rank, k))
                return ls_fail(LS_FAILED, "rank %d: byte %zu of %zu from %d is wrong", p->rank, k, bytes, i);
    }
    ls_free(r);
    ls_free(in);
    ls_free(out);
    return LS_OK;
}

static enum ls_status messages(struct probe *p)
{
    LS_TRY(all_pairs(p, 0, 0, 1));
    LS_TRY(all_pairs(p, 0, 10, 2));
    LS_TRY(all_pairs(p, 1, 1, (1u << 28) - 1));
    LS_TRY(all_pairs(p, 1 << 20, 2 << 20, 1));
    return all_pairs(p, 64 << 20, 64 << 20, 1);
}

/* More than an int counts, between two ranks. */
static enum ls_status huge(struct probe *p)
{
    const size_t bytes = ((size_t)1 << 31) + 12345;
    struct ls_transport_request r;
    uint8_t *data;
    LS_TRY(ls_region_map(bytes, (void **)&data));
    if (p->rank == 0) {
        data[0] = 1, data[bytes / 2] = 2, data[bytes - 1] = 3;
        LS_TRY(p->t->send(p->state, 1, 5, data, bytes, &r));
        LS_TRY(wait_for(p, &r));
    } else if (p->rank == 1) {
        LS_TRY(p->t->receive(p->state, 0, 5, data, bytes, &r));
        LS_TRY(wait_for(p, &r));
        if (r.bytes != bytes || data[0] != 1 || data[bytes / 2] != 2 || data[bytes - 1] != 3)
            return ls_fail(LS_FAILED, "rank 1: %zu bytes of %zu, or the wrong ones", r.bytes, bytes);
    }
    ls_region_unmap(data, bytes);
    return LS_OK;
}

/* Many under one tag, received one by one and in bunches; tags are kept apart. */
static enum ls_status order(struct probe *p)
{
    enum { N = 200, BIG = 20000 };
    static int out[N][BIG], in[N][BIG];
    static struct ls_transport_request s[N], r[N], other[2];
    int next = (p->rank + 1) % p->size, before = (p->rank - 1 + p->size) % p->size, late = 0, mark = 77;
    LS_TRY(p->t->send(p->state, next, 4, &mark, sizeof mark, &other[0]));
    for (int i = 0; i < N; i++) {
        out[i][0] = i;
        LS_TRY(p->t->send(p->state, next, 3, out[i], i % 3 == 0 ? sizeof out[i] : 4, &s[i]));
    }
    for (int i = 0; i < N; i++) {
        LS_TRY(p->t->receive(p->state, before, 3, in[i], sizeof in[i], &r[i]));
        if (i < N / 2)
            LS_TRY(wait_for(p, &r[i]));
    }
    for (int i = 0; i < N; i++) {
        LS_TRY(wait_for(p, &r[i]));
        LS_TRY(wait_for(p, &s[i]));
        if (in[i][0] != i || r[i].bytes != (i % 3 == 0 ? sizeof in[i] : 4))
            return ls_fail(LS_FAILED, "rank %d: message %d in place of %d", p->rank, in[i][0], i);
    }
    LS_TRY(p->t->receive(p->state, before, 4, &late, sizeof late, &other[1]));
    LS_TRY(wait_for(p, &other[1]));
    LS_TRY(wait_for(p, &other[0]));
    return late == 77 ? LS_OK : ls_fail(LS_FAILED, "rank %d: tags were mixed up", p->rank);
}

static enum ls_status any(struct probe *p)
{
    enum { N = 50 };
    int counts[64] = {0}, value;
    struct ls_transport_request r;
    if (p->rank > 0) {
        for (value = 0; value < N; value++) {
            LS_TRY(p->t->send(p->state, 0, 9, &value, sizeof value, &r));
            LS_TRY(wait_for(p, &r));
        }
        return LS_OK;
    }
    for (int i = 0; i < N * (p->size - 1); i++) {
        LS_TRY(p->t->receive(p->state, -1, 9, &value, sizeof value, &r));
        LS_TRY(wait_for(p, &r));
        if (r.peer < 1 || r.peer >= p->size || value != counts[r.peer]++)
            return ls_fail(LS_FAILED, "any: %d from rank %d is out of turn", value, r.peer);
    }
    return LS_OK;
}

static enum ls_status sum(struct probe *p)
{
    static float data[100003];
    struct ls_transport_request r;
    if (!p->t->allreduce) {
        printf("no sum of its own\n");
        return LS_OK;
    }
    for (int i = 0; i < 100003; i++)
        data[i] = (float)(i % 1000 + p->rank);
    LS_TRY(p->t->allreduce(p->state, data, 100003, &r));
    LS_TRY(wait_for(p, &r));
    for (int i = 0; i < 100003; i++)
        if (data[i] != (float)(i % 1000 * p->size + p->size * (p->size - 1) / 2))
            return ls_fail(LS_FAILED, "rank %d: sum %d is %g", p->rank, i, (double)data[i]);
    return LS_OK;
}

/* A receive that is given up must not swallow what comes later. */
static enum ls_status cancel(struct probe *p)
{
    int value = 5, got = 0;
    struct ls_transport_request gone, r;
    int next = (p->rank + 1) % p->size, before = (p->rank - 1 + p->size) % p->size;
    LS_TRY(p->t->receive(p->state, before, 11, &got, sizeof got, &gone));
    p->t->cancel(p->state, &gone);
    LS_TRY(barrier(p, 12));
    LS_TRY(p->t->send(p->state, next, 11, &value, sizeof value, &r));
    LS_TRY(wait_for(p, &r));
    LS_TRY(p->t->receive(p->state, before, 11, &got, sizeof got, &r));
    LS_TRY(wait_for(p, &r));
    return got == 5 ? LS_OK : ls_fail(LS_FAILED, "rank %d: %d in place of 5", p->rank, got);
}

/* Rank 0 gives up sends that rank 1 does not take, and unmaps their memory. Nothing may read that memory when rank 1 begins
 * to receive: a transport that still owns it fails there. */
static enum ls_status give_up_send(struct probe *p)
{
    enum { BYTES = 64 << 20, MANY = 2048, PIECE = 16384, LONG = BYTES - MANY * PIECE };
    static struct ls_transport_request r[MANY + 1], progress;
    bool done = false;
    char *data;
    double until;
    LS_TRY(ls_region_map(BYTES, (void **)&data));
    LS_TRY(barrier(p, 12));
    if (p->rank == 1) /* no call of the transport: nothing is taken */
        for (until = ls_now() + PATIENCE; access("given-up", F_OK) != 0 && ls_now() < until; nap())
            ;
    LS_TRY(p->t->receive(p->state, 1 - p->rank, 16, NULL, 0, &progress)); /* nobody sends that */
    if (p->rank == 1)
        LS_TRY(p->t->receive(p->state, 0, 15, data, BYTES, &r[0]));
    for (int i = 0; p->rank == 0 && i <= MANY; i++)
        LS_TRY(p->t->send(p->state, 1, 15, data + (size_t)i * PIECE, i < MANY ? PIECE : LONG, &r[i]));
    for (int i = 0; p->rank == 0 && i <= MANY; i++)
        if (p->t->test(p->state, &r[i], &done) != LS_OK || !done)
            p->t->cancel(p->state, &r[i]);
    if (p->rank == 0) {
        ls_region_unmap(data, BYTES);
        fclose(fopen("given-up", "we"));
    }
    for (until = ls_now() + 1; ls_now() < until; nap())
        p->t->test(p->state, &progress, &done);
    p->t->cancel(p->state, &progress);
    if (p->rank == 1)
        p->t->cancel(p->state, &r[0]);
    return LS_OK;
}

/* The last rank is killed while the others wait for it; they must hear of it. */
static enum ls_status killed(struct probe *p)
{
    int value;
    struct ls_transport_request r;
    double begun = ls_now();
    LS_TRY(barrier(p, 12));
    if (p->rank == p->size - 1)
        raise(SIGKILL);
    LS_TRY(p->t->receive(p->state, p->size - 1, 13, &value, sizeof value, &r));
    enum ls_status st = wait_for(p, &r);
    if (st == LS_PEER_LOST)
        printf("rank %d: lost %d after %.1f s\n", p->rank, r.peer, ls_now() - begun);
    return st;
}

/* All are connected and wait for a file named `go`; then all messages must still arrive. */
static enum ls_status paused(struct probe *p)
{
    int value;
    bool done = false;
    struct ls_transport_request r;
    printf("paused %d\n", (int)getpid());
    fflush(stdout);
    LS_TRY(p->t->receive(p->state, -1, 13, &value, sizeof value, &r));
    for (double until = ls_now() + PATIENCE; access("go", F_OK) != 0 && ls_now() < until; nap())
        LS_TRY(p->t->test(p->state, &r, &done));
    p->t->cancel(p->state, &r);
    return all_pairs(p, 1 << 20, 1 << 20, 1);
}

static enum ls_status nothing(struct probe *p)
{
    printf("rank %d of %d\n", p->rank, p->size);
    return LS_OK;
}

static enum ls_status everything(struct probe *p)
{
    LS_TRY(messages(p));
    LS_TRY(order(p));
    LS_TRY(any(p));
    LS_TRY(cancel(p));
    return sum(p);
}

static const struct {
    const char *name;
    enum ls_status (*run)(struct probe *p);
} cases[] = {
    {"everything", everything}, {"messages", messages},        {"huge", huge}, {"killed", killed}, {"paused", paused},
    {"open", nothing},          {"give-up-send", give_up_send}};

/* --- a stranger ------------------------------------------------------------------------------------------ */

/* A connection to that address, made as soon as somebody listens there; -1: nobody does. */
static int reach(const char *host, const char *port)
{
    struct addrinfo *a, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, port, &hints, &a) != 0)
        return -1;
    double until = ls_now() + PATIENCE;
    int fd = -1;
    while (fd < 0 && ls_now() < until) {
        fd = socket(a->ai_family, SOCK_STREAM, 0);
        if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
            nap();
        }
    }
    freeaddrinfo(a);
    return fd;
}

/* Bytes that mean nothing, until the connection is closed. */
static int junk(const char *host, const char *port)
{
    char noise[65536];
    int fd = reach(host, port);
    memset(noise, 'x', sizeof noise);
    if (fd < 0)
        return 1;
    send(fd, noise, sizeof noise, MSG_NOSIGNAL);
    while (recv(fd, noise, sizeof noise, 0) > 0)
        ;
    close(fd);
    return 0;
}

/* That many connections which say nothing, until standard input ends. */
static int idle(const char *host, const char *port, int connections)
{
    char byte;
    for (int i = 0; i < connections; i++)
        if (reach(host, port) < 0)
            return 1;
    printf("idle\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}

/* The number of the socket under a descriptor of a process; 0: it is none. */
static unsigned long socket_number(const char *pid, const char *descriptor)
{
    char path[300], text[64] = "";
    unsigned long number = 0;
    snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, descriptor);
    return readlink(path, text, sizeof text - 1) > 0 && sscanf(text, "socket:[%lu]", &number) == 1 ? number : 0;
}

static bool owns_socket(const char *pid, unsigned long number)
{
    char path[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = number > 0 && socket_number(pid, e->d_name) == number;
    if (dir)
        closedir(dir);
    return found;
}

/* What ends a process that uses UCX: the first bytes of its own protocol, and then none of it. */
static void send_bad_header(unsigned port)
{
    unsigned char bytes[72];
    char text[16];
    uint64_t magic = UINT64_C(0xCAFEBABE12345678);
    memset(bytes, 0xff, sizeof bytes);
    memcpy(bytes, &magic, sizeof magic);
    snprintf(text, sizeof text, "%u", port);
    int fd = reach("127.0.0.1", text);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    poll(&p, 1, 200);
    close(fd);
}

/* Prints the addresses, as the kernel writes them, that a process listens on; strike: and sends a bad header to each. */
static int ports(const char *pid, bool strike)
{
    static const char *const tables[] = {"tcp", "tcp6"};
    for (int i = 0; i < 2; i++) {
        char path[64], line[512], address[64];
        unsigned port, state;
        unsigned long number;
        snprintf(path, sizeof path, "/proc/%s/net/%s", pid, tables[i]);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, " %*d: %63[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %lu", address, &port, &state, &number) ==
                    4 &&
                state == 10 && owns_socket(pid, number)) {
                printf("listens at %s %u\n", address, port);
                if (strike)
                    send_bad_header(port);
            }
        if (f)
            fclose(f);
    }
    return 0;
}

static enum ls_status run(const char *name, int argc, char **argv)
{
    struct ls_options o;
    struct ls_launch l;
    struct probe p = {0};
    bool help;
    LS_TRY(ls_options_parse(&o, LS_CMD_TRAIN, argc, argv, &help));
    LS_TRY(ls_launch_detect(&o, &l));
    LS_TRY(load(&l, &p.t));
    enum ls_status st = p.t->open(&l, o.deadline, &p.state);
    if (st == LS_OK) {
        p.rank = l.rank;
        p.size = l.size;
        st = LS_FAILED;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (strcmp(cases[i].name, name) == 0)
                st = cases[i].run(&p);
        if (st == LS_OK && strcmp(name, "give-up-send") != 0)
            st = barrier(&p, 14);
        fflush(stdout);
        p.t->close(p.state, st == LS_OK && strcmp(name, "give-up-send") != 0);
        if (st == LS_OK)
            printf("rank %d of %d: done (%s)\n", p.rank, p.size, p.t->name);
    }
    ls_launch_release(&l);
    ls_options_release(&o);
    return st;
}

int main(int argc, char **argv)
{
    alarm(180);
    if (argc == 4 && strcmp(argv[1], "junk") == 0)
        return junk(argv[2], argv[3]);
    if (argc == 3 && (strcmp(argv[1], "ports") == 0 || strcmp(argv[1], "strike") == 0))
        return ports(argv[2], strcmp(argv[1], "strike") == 0);
    if (argc == 5 && strcmp(argv[1], "idle") == 0)
        return idle(argv[2], argv[3], atoi(argv[4]));
    enum ls_status st = argc > 1 ? run(argv[1], argc - 2, argv + 2) : LS_USAGE;
    if (st == LS_OK)
        return 0; /* MPI is finalised by its exit handler */
    fflush(NULL);
    _Exit((int)st); /* no atexit of a library that was left badly */
}
