#define _GNU_SOURCE
#include "cmd/bench/ranks/ranks.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { TOKEN = 16 /* bytes */, VARIABLES = 5 };
#define ALLOWED 10.0 /* seconds; a child's rank extends the deadline by them twice a second */

/* What rank 0 wants measured. The words follow it. */
struct order {
    int32_t workers; /* 0: nothing more */
    int32_t status;  /* with workers 0: of the command */
    int32_t port, n_words;
    uint32_t bytes; /* of the words, each with a 0 */
    char token[2 * TOKEN + 1];
};

/* How the child of a rank ended. */
struct outcome {
    int32_t status;
    char reason[LS_BENCH_REASON];
};

/* The tick of a child, and the group that it keeps alive. */
struct alive {
    struct ls_comm *comm;
    struct ls_bench_child *child;
    void (*tick)(void *context);
    void *context;
};

enum ls_status ls_bench_ranks_open(struct ls_bench_ranks *r, const struct ls_world *w, int *lost)
{
    int nodes = 1, size = ls_comm_size(w->comm);
    for (int i = 0; i < size; i++)
        nodes = ls_comm_node(w->comm, i) >= nodes ? ls_comm_node(w->comm, i) + 1 : nodes;
    *r = (struct ls_bench_ranks){.comm = w->comm};
    int n = snprintf(r->over, sizeof r->over, "the first ranks of %s, over ", w->launch.how);
    if (nodes == 1)
        snprintf(r->over + n, sizeof r->over - (size_t)n, "shared memory on one node");
    else
        snprintf(r->over + n, sizeof r->over - (size_t)n, "%s between %d nodes%s", w->launch.transport, nodes,
                 nodes < size ? " and shared memory within a node" : "");
    return ls_reach_find(w, r->address, lost);
}

/* --- a child -------------------------------------------------------------------------------------------- */

/* The environment of this process, behind the variables of launch/launchers.c. The arena owns it. */
static char **make_environment(const struct ls_bench_ranks *r, const struct order *w, struct ls_arena *strings)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **list = ls_arena_take(strings, (n + VARIABLES + 1) * sizeof *list);
    if (!list)
        return NULL;
    list[0] = ls_arena_format(strings, "LOCKSTEP_LAUNCH_RANK=%d", ls_comm_rank(r->comm));
    list[1] = ls_arena_format(strings, "LOCKSTEP_LAUNCH_SIZE=%d", w->workers);
    list[2] = ls_arena_format(strings, "LOCKSTEP_LAUNCH_ADDRESS=%s", r->address);
    list[3] = ls_arena_format(strings, "LOCKSTEP_LAUNCH_PORT=%d", w->port);
    list[4] = ls_arena_format(strings, "LOCKSTEP_LAUNCH_TOKEN=%s", w->token);
    for (int i = 0; i < VARIABLES; i++)
        if (!list[i])
            return NULL;
    memcpy(list + VARIABLES, environ, (n + 1) * sizeof *list);
    return list;
}

static void keep_alive(void *context)
{
    const struct alive *a = context;
    ls_comm_allow(a->comm, ALLOWED);
    a->child->stop = ls_comm_broken(a->comm) != LS_OK;
    if (a->tick)
        a->tick(a->context);
}

static void run_child(const struct ls_bench_ranks *r, const struct order *w, struct ls_bench_child *child,
                      struct outcome *mine)
{
    struct alive alive = {.comm = r->comm, .child = child, .tick = child->tick, .context = child->context};
    struct ls_arena strings = {0};
    child->environment = make_environment(r, w, &strings);
    child->silent = ls_comm_rank(r->comm) > 0;
    child->tick = keep_alive;
    child->context = &alive;
    enum ls_status st = child->environment ? ls_bench_child_run(child) : LS_FAILED;
    mine->status = (int32_t)(st != LS_OK ? st : child->status);
    if (st == LS_FAILED)
        snprintf(mine->reason, sizeof mine->reason, "%s", ls_log_last());
    else if (mine->status != LS_OK)
        snprintf(mine->reason, sizeof mine->reason, "%s", child->reason);
    child->environment = NULL;
    child->tick = alive.tick; /* the caller may run it again */
    child->context = alive.context;
    ls_arena_release(&strings);
}

/* --- together ------------------------------------------------------------------------------------------- */

/* A child that lost another one is worth less than that other one's reason. */
static int first_hand(const struct outcome *all, int size)
{
    int found = -1;
    for (int i = 0; i < size; i++) {
        bool better = found < 0 || (all[found].status == LS_PEER_LOST && all[i].status != LS_PEER_LOST);
        if (all[i].status != LS_OK && better)
            found = i;
    }
    return found;
}

/* Starts this rank's child if it has one, and waits for those of the others. The outcome of all is in *child. */
static enum ls_status take_part(const struct ls_bench_ranks *r, const struct order *w, struct ls_bench_child *child)
{
    int size = ls_comm_size(r->comm);
    struct outcome mine, *all = ls_alloc((size_t)size, sizeof *all);
    if (!all)
        return LS_FAILED;
    memset(&mine, 0, sizeof mine);
    child->output = NULL;
    if (ls_comm_rank(r->comm) < w->workers)
        run_child(r, w, child, &mine);
    enum ls_status st = ls_comm_allgather(r->comm, &mine, sizeof mine, all);
    int worst = st == LS_OK ? first_hand(all, size) : -1;
    if (worst >= 0) {
        all[worst].reason[LS_BENCH_REASON - 1] = 0;
        child->status = (enum ls_status)all[worst].status;
        if (w->workers > 1)
            snprintf(child->reason, sizeof child->reason, "rank %d (host %s): %.900s", worst,
                     ls_comm_host(r->comm, worst), all[worst].reason);
        for (int i = 0; i < size; i++)
            st = all[i].status == LS_INTERRUPTED ? LS_INTERRUPTED : st;
    }
    if (worst >= 0 || st != LS_OK) {
        json_decref(child->output);
        child->output = NULL;
    }
    ls_free(all);
    return st;
}

static enum ls_status write_words(const struct ls_bench_child *child, struct order *w, char **text)
{
    size_t bytes = 0;
    for (int i = 0; i < child->n_words; i++)
        bytes += strlen(child->words[i]) + 1;
    *text = ls_alloc(bytes + 1, 1);
    if (!*text)
        return LS_FAILED;
    char *at = *text;
    for (int i = 0; i < child->n_words; i++)
        at = stpcpy(at, child->words[i]) + 1;
    w->n_words = child->n_words;
    w->bytes = (uint32_t)bytes;
    return LS_OK;
}

static enum ls_status make_token(char *text)
{
    unsigned char bytes[TOKEN];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return ls_fail(LS_FAILED, "the system gives no random numbers for a token");
    for (int i = 0; i < TOKEN; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return LS_OK;
}

enum ls_status ls_bench_ranks_run(const struct ls_bench_ranks *r, struct ls_bench_child *child, int workers)
{
    struct order w;
    char *text = NULL;
    memset(&w, 0, sizeof w);
    w.workers = workers;
    w.port = ls_reach_free_port();
    if (w.port == 0)
        return ls_fail(LS_FAILED, "rank 0 finds no free TCP port");
    LS_TRY(make_token(w.token));
    enum ls_status st = write_words(child, &w, &text);
    if (st == LS_OK)
        st = ls_comm_broadcast(r->comm, 0, &w, sizeof w);
    if (st == LS_OK)
        st = ls_comm_broadcast(r->comm, 0, text, w.bytes);
    ls_free(text);
    return st == LS_OK ? take_part(r, &w, child) : st;
}

void ls_bench_ranks_end(const struct ls_bench_ranks *r, enum ls_status status)
{
    struct order w;
    memset(&w, 0, sizeof w);
    w.status = (int32_t)status;
    if (ls_comm_broken(r->comm) == LS_OK)
        ls_comm_broadcast(r->comm, 0, &w, sizeof w);
}

/* --- the other ranks ------------------------------------------------------------------------------------ */

static enum ls_status serve_one(const struct ls_bench_ranks *r, const struct order *w, struct ls_bench_child *child)
{
    char *text = ls_alloc((size_t)w->bytes + 1, 1);
    const char **words = ls_alloc((size_t)w->n_words + 1, sizeof *words);
    enum ls_status st = text && words ? ls_comm_broadcast(r->comm, 0, text, w->bytes) : LS_FAILED;
    const char *at = text;
    for (int i = 0; st == LS_OK && i < w->n_words; i++) {
        words[i] = at;
        at += strlen(at) + 1;
    }
    child->words = words;
    child->n_words = w->n_words;
    if (st == LS_OK)
        st = take_part(r, w, child);
    ls_free(words);
    ls_free(text);
    return st == LS_INTERRUPTED ? LS_OK : st; /* rank 0 ends then */
}

enum ls_status ls_bench_ranks_serve(const struct ls_bench_ranks *r, const struct ls_options *o)
{
    sigset_t before;
    struct ls_bench_child child = {.o = o, .said = json_object(), .signals = ls_bench_child_signals(&before)};
    struct signalfd_siginfo signal; /* read, or it would end this process when it is unblocked */
    struct order w;
    enum ls_status st;
    do {
        memset(&w, 0, sizeof w);
        st = ls_comm_broadcast(r->comm, 0, &w, sizeof w);
        if (st == LS_OK && w.workers > 0)
            st = serve_one(r, &w, &child);
    } while (st == LS_OK && w.workers > 0);
    st = st == LS_OK ? (enum ls_status)w.status : st;
    if (read(child.signals, &signal, sizeof signal) > 0 && st == LS_OK)
        st = LS_INTERRUPTED;
    close(child.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    json_decref(child.said);
    return st;
}
