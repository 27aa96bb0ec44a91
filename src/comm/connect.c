/* Coming together, in the communication thread: the carrier connects, everyone says who and where it is, the processes of
 * a node take their seats at a board, and the tree is dealt. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/group.h"
#include "comm/transports.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LETTERS_LEAST = 2304, HELLO_VERSION = 2, NAME_ROOM = 64 };

/* Bytes of an envelope. */
#define ENVELOPE (sizeof(struct ls_mark) + LS_PACKED)

struct hello {
    uint32_t version;
    int32_t pid, replicas, collective;
    uint64_t node, max_bytes;
    char host[LS_HOST_ROOM];
};

/* --- who is where --------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t mix_link(uint64_t hash, const char *path)
{
    char text[128];
    ssize_t n = readlink(path, text, sizeof text);
    return mix(hash, text, n > 0 ? (size_t)n : 0);
}

/* Processes of equal numbers are on one node: one kernel, one /dev/shm, the same names for processes. Another network
 * namespace is another node: whoever made it wants traffic to go over its network; so is another LOCKSTEP_NODE, which
 * is for tests. */
static uint64_t node_number(const char *host, const char *named)
{
    uint64_t hash = mix(UINT64_C(14695981039346656037), host, strlen(host));
    if (named)
        hash = mix(hash, named, strlen(named) + 1);
    char boot[64] = "";
    struct stat shm;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(boot, sizeof boot, f))
            boot[0] = 0;
        fclose(f);
    }
    hash = mix(hash, boot, strlen(boot));
    hash = mix_link(hash, "/proc/self/ns/net");
    hash = mix_link(hash, "/proc/self/ns/pid");
    if (stat("/dev/shm", &shm) == 0) {
        hash = mix(hash, &shm.st_dev, sizeof shm.st_dev);
        hash = mix(hash, &shm.st_ino, sizeof shm.st_ino);
    }
    return hash;
}

static enum ls_status exchange(struct ls_comm *c, struct hello *all)
{
    struct hello *mine = &all[c->rank];
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            LS_TRY(ls_letter_receive(c, r, &all[r], sizeof all[r]));
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            LS_TRY(ls_letter_send(c, r, mine, sizeof *mine));
    LS_TRY(ls_letters_wait(c, 0, c->n_letters));
    ls_letters_forget(c);
    return LS_OK;
}

static enum ls_status compare(const struct ls_comm *c, const struct hello *all)
{
    const struct hello *mine = &all[c->rank];
    for (int r = 0; r < c->size; r++) {
        const struct hello *h = &all[r];
        if (h->version != mine->version)
            return ls_fail(LS_USAGE, "rank %d (host %s) is another version of Lockstep: install one version everywhere",
                           r, c->peers[r].host);
        if (h->replicas != mine->replicas)
            return ls_fail(LS_USAGE,
                           "rank %d (host %s) has %d replicas, rank %d has %d: give all ranks the same --replicas", r,
                           c->peers[r].host, h->replicas, c->rank, mine->replicas);
        if (h->collective != mine->collective || h->max_bytes != mine->max_bytes)
            return ls_fail(LS_USAGE,
                           "rank %d (host %s) was started with another --collective, model or bucket size than rank %d",
                           r, c->peers[r].host, c->rank);
    }
    return LS_OK;
}

/* Nodes are numbered as their first ranks are. */
static void number_nodes(struct ls_comm *c, const struct hello *all)
{
    c->nodes = 0;
    for (int r = 0; r < c->size; r++) {
        struct ls_peer *p = &c->peers[r];
        p->node = -1;
        p->local = 0;
        for (int q = 0; q < r; q++)
            if (all[q].node == all[r].node) {
                p->node = c->peers[q].node;
                p->local++;
            }
        if (p->node < 0)
            p->node = c->nodes++;
    }
    c->local = c->peers[c->rank].local;
    c->locals = 0;
    for (int r = 0; r < c->size; r++)
        c->locals += c->peers[r].node == c->peers[c->rank].node;
}

static enum ls_status meet(struct ls_comm *c)
{
    struct hello *all = ls_alloc((size_t)c->size, sizeof *all);
    if (!all)
        return LS_FAILED;
    struct hello *mine = &all[c->rank];
    if (gethostname(mine->host, sizeof mine->host - 1) != 0)
        snprintf(mine->host, sizeof mine->host, "unknown");
    mine->version = HELLO_VERSION;
    mine->pid = (int32_t)getpid();
    mine->replicas = c->o.replicas;
    mine->collective = (int32_t)c->o.collective;
    mine->max_bytes = c->o.max_bytes;
    mine->node = node_number(mine->host, getenv("LOCKSTEP_NODE"));
    enum ls_status st = exchange(c, all);
    if (st == LS_OK) {
        for (int r = 0; r < c->size; r++) {
            all[r].host[LS_HOST_ROOM - 1] = 0;
            memcpy(c->peers[r].host, all[r].host, LS_HOST_ROOM);
            c->peers[r].pid = all[r].pid;
        }
        number_nodes(c, all);
        st = compare(c, all);
    }
    ls_free(all);
    return st;
}

/* --- the board ---------------------------------------------------------------------------------------------------------- */

static enum ls_status name_board(struct ls_comm *c, char *name)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return ls_fail(LS_FAILED, "the system gives no random numbers for the name of shared memory");
    snprintf(name, NAME_ROOM, "/lockstep-%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->peers[r].node == c->peers[c->rank].node)
            LS_TRY(ls_letter_send(c, r, name, NAME_ROOM));
    return LS_OK;
}

static void sit_at(struct ls_comm *c, struct ls_board *board)
{
    c->board = board;
    c->bell = &ls_board_seat(board, board->me)->bell;
    struct ls_seat *seat = ls_board_seat(board, board->me);
    atomic_store(&seat->since, ls_clock_ns());
    atomic_store(&seat->alive, ls_clock_ns());
}

static enum ls_status gather_node(struct ls_comm *c)
{
    char name[NAME_ROOM] = "";
    struct ls_board *board;
    if (c->locals == 1 || c->board)
        return LS_OK;
    if (c->local == 0)
        LS_TRY(name_board(c, name));
    for (int r = 0; c->local > 0 && r < c->rank; r++)
        if (c->peers[r].node == c->peers[c->rank].node && c->peers[r].local == 0)
            LS_TRY(ls_letter_receive(c, r, name, NAME_ROOM));
    LS_TRY(ls_letters_wait(c, 0, c->n_letters));
    ls_letters_forget(c);
    name[NAME_ROOM - 1] = 0;
    LS_TRY(ls_board_open(name, c->locals, c->local, c->o.deadline, &board));
    sit_at(c, board);
    if (c->nodes > 1)
        return LS_OK;
    /* Messages go through shared memory as well. The carrier is kept for its own sums, and for the end. */
    LS_TRY(ls_shm_on_board(board, &c->post_state));
    c->post = &ls_transport_shm;
    return LS_OK;
}

/* --- circles --------------------------------------------------------------------------------------------------------------- */

static enum ls_status make_circle(struct ls_circle *k, int replicas, int size)
{
    LS_TRY(ls_tree_init(&k->tree, replicas, size));
    k->size = size;
    k->ranks = ls_alloc((size_t)size, sizeof *k->ranks);
    if (!k->ranks)
        return LS_FAILED;
    for (int i = 0; i < size; i++) {
        int first, n = ls_tree_parts(&k->tree, i, &first);
        k->most_parts = n > k->most_parts ? n : k->most_parts;
    }
    k->halving = (size & (size - 1)) == 0 && k->tree.n_parts == size;
    return ls_summer_new(&k->tree, &k->summer);
}

static void release_circle(struct ls_circle *k)
{
    ls_summer_free(k->summer);
    ls_tree_release(&k->tree);
    ls_free(k->ranks);
    *k = (struct ls_circle){0};
}

static bool power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Who takes which place of the tree: see hier.c. */
static void seat_ranks(struct ls_comm *c)
{
    c->hier = c->size == c->nodes * c->locals && c->locals > 1;
    for (int r = 0; r < c->size; r++)
        c->hier = c->hier && c->peers[r].local < c->locals;
    c->hier_exact = c->hier && power_of_two(c->size) && c->o.replicas % c->size == 0;
    for (int r = 0; r < c->size; r++) {
        struct ls_peer *p = &c->peers[r];
        p->place = c->hier_exact ? p->node + c->nodes * p->local : r;
        c->all.ranks[p->place] = r;
    }
    c->all.me = c->peers[c->rank].place;
}

static enum ls_status draw_circles(struct ls_comm *c)
{
    LS_TRY(make_circle(&c->all, c->o.replicas, c->size));
    seat_ranks(c);
    LS_TRY(ls_tree_init_seated(&c->tree, c->o.replicas, c->size, c->all.ranks));
    LS_TRY(make_circle(&c->node, c->nodes == 1 ? c->o.replicas : c->locals, c->locals));
    LS_TRY(make_circle(&c->across, c->nodes, c->nodes));
    for (int r = 0; r < c->size; r++) {
        const struct ls_peer *p = &c->peers[r];
        if (p->node == c->peers[c->rank].node)
            c->node.ranks[p->local] = r;
        if (p->local == c->local)
            c->across.ranks[p->node] = r;
    }
    c->node.me = c->local;
    c->across.me = c->peers[c->rank].node;
    return LS_OK;
}

/* --- all of it ----------------------------------------------------------------------------------------------------------------- */

/* What needs the size of the group and no more. */
static enum ls_status take_memory(struct ls_comm *c)
{
    size_t n = (size_t)c->size;
    c->letter_room = LETTERS_LEAST + 4 * c->size * (c->o.replicas / c->size + 2);
    c->peers = ls_alloc(n, sizeof *c->peers);
    c->missing = ls_alloc(n, sizeof *c->missing);
    c->ends = ls_alloc(n, sizeof *c->ends);
    c->letters = ls_alloc((size_t)c->letter_room, sizeof *c->letters);
    c->envelopes = ls_alloc(2 * n, sizeof *c->envelopes);
    c->operands = ls_alloc((size_t)c->o.replicas, sizeof *c->operands);
    c->wires = ls_alloc((size_t)c->o.replicas, sizeof *c->wires);
    c->results = ls_alloc(n + 1, sizeof *c->results);
    if (!c->peers || !c->missing || !c->ends || !c->letters || !c->envelopes || !c->operands || !c->wires ||
        !c->results)
        return LS_FAILED;
    for (int r = 0; r < c->size; r++) {
        c->peers[r].local = r;
        snprintf(c->peers[r].host, LS_HOST_ROOM, "not known yet");
    }
    void *room;
    LS_TRY(ls_region_map(2 * n * ENVELOPE, &room));
    c->envelope_room = room;
    for (size_t i = 0; i < 2 * n; i++)
        c->envelopes[i].room = c->envelope_room + i * ENVELOPE;
    return LS_OK;
}

static enum ls_status take_scratch(struct ls_comm *c)
{
    void *scratch;
    size_t floats = c->o.max_bytes / sizeof(float), all = ls_direct_scratch(&c->all, floats);
    size_t across = ls_direct_scratch(&c->across, floats);
    c->scratch_bytes = (all > across ? all : across) + LS_CODEC_BLOCK * sizeof(float);
    LS_TRY(ls_region_map(c->scratch_bytes, &scratch));
    c->scratch = scratch;
    return LS_OK;
}

static enum ls_status check_way(const struct ls_comm *c)
{
    if (c->o.collective == LS_COLLECTIVE_MPI && !c->carrier->allreduce)
        return ls_fail(LS_USAGE,
                       "--collective mpi needs a run started by mpirun or srun with PMI: this one goes over %s",
                       c->carrier->name);
    if (c->o.collective == LS_COLLECTIVE_HIER && c->nodes > 1 && !c->hier && c->rank == 0)
        ls_warn("--collective hier needs several ranks on each node, as many on each: the tree is taken instead");
    if (c->o.collective == LS_COLLECTIVE_HIER && c->nodes > 1 && c->hier && !c->hier_exact && c->rank == 0)
        ls_warn("--collective hier does not give the tree's bits with %d ranks on %d nodes", c->size, c->nodes);
    return LS_OK;
}

enum ls_status ls_connect(struct ls_comm *c)
{
    int waited_for = 0;
    LS_TRY(ls_transport_find(&c->launch, &c->carrier));
    LS_TRY(c->carrier->open(&c->launch, c->o.deadline, &c->carrier_state));
    if (!atomic_compare_exchange_strong(&c->opened, &waited_for, 1))
        return LS_PEER_LOST; /* ls_thread_start has said why */
    c->rank = c->launch.rank;
    c->size = c->launch.size;
    if (c->size == 1)
        return LS_OK;
    if (c->o.replicas == 0)
        c->o.replicas = c->size;
    LS_TRY(take_memory(c));
    c->post = c->carrier;
    c->post_state = c->carrier_state;
    c->nodes = 1;
    if (c->carrier == &ls_transport_shm && !getenv("LOCKSTEP_NODE"))
        sit_at(c, ls_shm_board(c->carrier_state));
    c->polled = !c->board;
    if (c->polled && c->post->descriptor)
        c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    LS_TRY(meet(c));
    LS_TRY(gather_node(c));
    LS_TRY(draw_circles(c));
    LS_TRY(check_way(c));
    LS_TRY(take_scratch(c));
    bool library = c->o.collective == LS_COLLECTIVE_MPI;
    c->polled = c->nodes > 1 || library;
    if (c->event >= 0 && (c->nodes == 1 || library)) { /* it belongs to the carrier, which is no longer asked */
        close(c->event);
        c->event = -1;
    }
    c->may_help = c->nodes == 1 && !library;
    c->crowded = c->locals > sysconf(_SC_NPROCESSORS_ONLN);
    return ls_beats_start(c);
}

void ls_disconnect(struct ls_comm *c, bool graceful)
{
    ls_beats_stop(c);
    if (c->board)
        atomic_store(&ls_board_seat(c->board, c->local)->closed, 1);
    c->bell = &c->own;
    if (c->post_state && c->post_state != c->carrier_state)
        c->post->close(c->post_state, graceful);
    if (c->board && !(c->carrier == &ls_transport_shm && c->board == ls_shm_board(c->carrier_state)))
        ls_board_close(c->board);
    c->board = NULL;
    if (c->carrier_state)
        c->carrier->close(c->carrier_state, graceful);
    c->carrier_state = c->post_state = NULL;
    ls_region_unmap(c->envelope_room, 2 * (size_t)c->size * ENVELOPE);
    c->envelope_room = NULL;
    ls_region_unmap(c->scratch, c->scratch_bytes);
    c->scratch = NULL;
    release_circle(&c->all);
    release_circle(&c->node);
    release_circle(&c->across);
    ls_tree_release(&c->tree);
}
