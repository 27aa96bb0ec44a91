/* Opening a group, in the communication thread: the transport connects, all ranks exchange who and where they are, the
 * processes of a node attach to a segment of shared memory, and the tree is made. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "comm/group.h"
#include "comm/transports.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { MESSAGES_LEAST = 2304, HELLO_VERSION = 3, NAME_ROOM = 64 };

#define ENVELOPE (sizeof(struct ls_mark) + LS_PACKED) /* bytes */

struct hello {
    uint32_t version;
    int32_t pid, replicas, collective;
    uint64_t node, max_bytes;
    char host[LS_HOST_ROOM];
};

/* --- who is where --------------------------------------------------------------------------------------------------- */

static enum ls_status exchange(struct ls_comm *c, struct hello *all)
{
    struct hello *mine = &all[c->rank];
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            LS_TRY(ls_message_receive(c, r, &all[r], sizeof all[r]));
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            LS_TRY(ls_message_send(c, r, mine, sizeof *mine));
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
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
            return ls_fail(
                LS_USAGE,
                "rank %d (host %s) has %d replicas, rank %d has %d: give all ranks the same --replicas and --parallel",
                r, c->peers[r].host, h->replicas, c->rank, mine->replicas);
        if (h->collective != mine->collective || h->max_bytes != mine->max_bytes)
            return ls_fail(LS_USAGE,
                           "rank %d (host %s) was started with another --collective, model or bucket size than rank %d",
                           r, c->peers[r].host, c->rank);
    }
    return LS_OK;
}

/* Nodes are numbered in the order of their first ranks. */
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

static enum ls_status exchange_hellos(struct ls_comm *c)
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
    mine->node = ls_node_number(mine->host, c->launch.node);
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

/* --- shared memory ------------------------------------------------------------------------------------------------ */

static enum ls_status name_segment(struct ls_comm *c, char *name)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return ls_fail(LS_FAILED, "the system gives no random numbers for the name of shared memory");
    snprintf(name, NAME_ROOM, "/lockstep-%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->peers[r].node == c->peers[c->rank].node)
            LS_TRY(ls_message_send(c, r, name, NAME_ROOM));
    return LS_OK;
}

static void use_segment(struct ls_comm *c, struct ls_shm_segment *segment)
{
    c->segment = segment;
    c->doorbell = &ls_shm_slot(segment, segment->me)->doorbell;
    struct ls_slot *slot = ls_shm_slot(segment, segment->me);
    atomic_store(&slot->since, ls_clock_ns());
    atomic_store(&slot->alive, ls_clock_ns());
}

static enum ls_status gather_node(struct ls_comm *c)
{
    char name[NAME_ROOM] = "";
    struct ls_shm_segment *segment;
    if (c->locals == 1 || c->segment)
        return LS_OK;
    if (c->local == 0)
        LS_TRY(name_segment(c, name));
    for (int r = 0; c->local > 0 && r < c->rank; r++)
        if (c->peers[r].node == c->peers[c->rank].node && c->peers[r].local == 0)
            LS_TRY(ls_message_receive(c, r, name, NAME_ROOM));
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
    name[NAME_ROOM - 1] = 0;
    LS_TRY(ls_shm_segment_open(name, c->locals, c->local, c->o.deadline, &segment));
    use_segment(c, segment);
    if (c->nodes > 1)
        return LS_OK;
    /* Messages use shared memory as well. The transport is kept for its allreduce and for the close. */
    LS_TRY(ls_shm_on_segment(segment, &c->channel_state));
    c->channel = &ls_transport_shm;
    return LS_OK;
}

/* --- open and close ----------------------------------------------------------------------------------------------- */

/* Memory whose size depends on the number of ranks only. */
static enum ls_status take_memory(struct ls_comm *c)
{
    size_t n = (size_t)c->size;
    c->message_room = MESSAGES_LEAST + 4 * c->size * (c->o.replicas / c->size + 2);
    c->peers = ls_alloc(n, sizeof *c->peers);
    c->missing = ls_alloc(n, sizeof *c->missing);
    c->ends = ls_alloc(n, sizeof *c->ends);
    c->messages = ls_alloc((size_t)c->message_room, sizeof *c->messages);
    c->envelopes = ls_alloc(2 * n, sizeof *c->envelopes);
    c->operands = ls_alloc((size_t)c->o.replicas, sizeof *c->operands);
    c->wires = ls_alloc((size_t)c->o.replicas, sizeof *c->wires);
    c->results = ls_alloc(n + 1, sizeof *c->results);
    if (!c->peers || !c->missing || !c->ends || !c->messages || !c->envelopes || !c->operands || !c->wires ||
        !c->results)
        return LS_FAILED;
    for (int r = 0; r < c->size; r++) {
        c->peers[r].local = r;
        c->peers[r].node = r; /* until the hellos have arrived */
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

static enum ls_status check_collective(const struct ls_comm *c)
{
    if (c->o.collective == LS_COLLECTIVE_MPI && !c->transport->allreduce)
        return ls_fail(LS_USAGE,
                       "--collective mpi needs a run started by mpirun or srun with PMI: this one goes over %s",
                       c->transport->name);
    if (c->o.collective == LS_COLLECTIVE_HIER && c->nodes > 1 && !c->hier && c->rank == 0)
        ls_warn("--collective hier needs several ranks on each node, as many on each: the tree is taken instead");
    if (c->o.collective == LS_COLLECTIVE_HIER && c->nodes > 1 && c->hier && !c->hier_exact && c->rank == 0)
        ls_warn("--collective hier does not give the tree's bits with %d ranks on %d nodes", c->size, c->nodes);
    return LS_OK;
}

enum ls_status ls_connect(struct ls_comm *c)
{
    int waited_for = 0;
    LS_TRY(ls_transport_find(&c->launch, &c->transport));
    LS_TRY(c->transport->open(&c->launch, c->o.deadline, &c->transport_state));
    if (!atomic_compare_exchange_strong(&c->opened, &waited_for, 1))
        return LS_PEER_LOST; /* ls_thread_start has reported it */
    c->rank = c->launch.rank;
    c->size = c->launch.size;
    if (c->size == 1)
        return LS_OK;
    if (c->o.replicas == 0)
        c->o.replicas = c->size;
    LS_TRY(take_memory(c));
    c->channel = c->transport;
    c->channel_state = c->transport_state;
    c->nodes = 1;
    if (c->transport == &ls_transport_shm && !c->launch.node)
        use_segment(c, ls_shm_segment_of(c->transport_state));
    c->polled = !c->segment;
    if (c->polled && c->channel->descriptor)
        c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->polled)
        LS_TRY(ls_heartbeat_start(c));
    LS_TRY(exchange_hellos(c));
    if (c->nodes == 1) /* shared memory serves */
        ls_heartbeat_stop(c);
    LS_TRY(gather_node(c));
    LS_TRY(ls_subgroups_make(c));
    LS_TRY(check_collective(c));
    LS_TRY(take_scratch(c));
    bool library = c->o.collective == LS_COLLECTIVE_MPI;
    c->polled = c->nodes > 1 || library;
    if (c->event >= 0 && (c->nodes == 1 || library)) { /* it serves the transport, which no longer carries messages */
        close(c->event);
        c->event = -1;
    }
    c->may_help = c->nodes == 1 && !library;
    c->crowded = c->locals > sysconf(_SC_NPROCESSORS_ONLN);
    return LS_OK;
}

void ls_disconnect(struct ls_comm *c, bool graceful)
{
    ls_heartbeat_stop(c);
    if (c->segment)
        atomic_store(&ls_shm_slot(c->segment, c->local)->closed, 1);
    c->doorbell = &c->own;
    if (c->channel_state && c->channel_state != c->transport_state)
        c->channel->close(c->channel_state, graceful);
    if (c->segment && !(c->transport == &ls_transport_shm && c->segment == ls_shm_segment_of(c->transport_state)))
        ls_shm_segment_close(c->segment);
    c->segment = NULL;
    if (c->transport_state)
        c->transport->close(c->transport_state, graceful);
    c->transport_state = c->channel_state = NULL;
    ls_heartbeat_release(c);
    ls_region_unmap(c->envelope_room, 2 * (size_t)c->size * ENVELOPE);
    c->envelope_room = NULL;
    ls_region_unmap(c->scratch, c->scratch_bytes);
    c->scratch = NULL;
    ls_subgroups_release(c);
}
