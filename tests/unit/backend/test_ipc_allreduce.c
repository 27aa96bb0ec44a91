/* Cards that sum gradients among themselves, without a card: CUDA's part is played by a thread a process that takes work from
 * streams in any order that CUDA allows, over memory and events that all processes share; NCCL's, by a sum in that memory.
 * Built where the backend cuda is. */
#include "comm_ranks.h"

#include "backend/cuda/collective/collective.h"
#include "backend/cuda/timeline.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

enum { CUTS = 6, NODES = 12, END = 10, ROOM = 1024, EVENTS = 32, FLOATS = 64 * (1 + 7 + 40 + 3 + 100 + 2) };

static const struct ls_peers_cut cuts[CUTS] = {
    {0, 64, 2},           {64, 7 * 64, 2},        {8 * 64, 40 * 64, 5},
    {48 * 64, 3 * 64, 7}, {51 * 64, 100 * 64, 7}, {151 * 64, 2 * 64, END - 1},
};

/* --- what the processes share ---------------------------------------------------------------------------------- */

struct event {
    _Atomic uint64_t recorded, completed;
};

static struct shared {
    float grads[MOST_RANKS][FLOATS];
    struct event events[MOST_RANKS][EVENTS];
    float staged[2][MOST_RANKS][FLOATS]; /* NCCL's */
    _Atomic uint64_t staged_times[CUTS];
} * shared;

/* --- the card --------------------------------------------------------------------------------------------------- */

enum kind { RECORD, WAIT, RUN, CLEAR, SUM, STAGE, UNSTAGE, PUT, TAKE };

struct op {
    enum kind kind;
    struct event *event;
    uint64_t generation;
    int first, last;
    uint64_t step;
    int cut;
    struct ls_cuda_parts parts;
    int64_t from, count;
};

static struct {
    pthread_mutex_t lock;
    struct {
        struct op ops[ROOM];
        int head, n;
    } streams[3]; /* compute, copies, sums */
    int rank, size, next_event, events, mapped, checked, left;
    uint64_t times[CUTS], step; /* sums that NCCL was given; what is fed */
    bool unreachable, broken, stop;
    const struct ls_peers_group *group;
    unsigned random;
} card = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned roll(unsigned n)
{
    card.random = card.random * 1664525u + 1013904223u;
    return (card.random >> 8) % n;
}

/* Of what a rank computes in a step; sums of these depend on their order. */
static float value_of(int rank, uint64_t step, int i)
{
    return (float)((rank * 7919 + i * 31 + (int)step * 17) % 1000 - 500) / 3.0f * (rank % 2 ? 1e-4f : 1.0f);
}

static bool has_samples(int rank, uint64_t step)
{
    return (int)(step % 7) != rank;
}

static void run_nodes(const struct op *o)
{
    float *mine = shared->grads[card.rank];
    for (int c = 0; c < CUTS; c++)
        for (size_t i = 0; cuts[c].ready >= o->first && cuts[c].ready < o->last && i < cuts[c].count; i++)
            mine[cuts[c].first + i] = value_of(card.rank, o->step, (int)(cuts[c].first + i));
    if (o->first < END)
        return;
    for (int i = 0; i < FLOATS; i++) {
        float part[MOST_RANKS];
        for (int r = 0; r < card.size; r++)
            part[r] = has_samples(r, o->step) ? value_of(r, o->step, i) : 0;
        for (int s = 0; s < card.group->n_sums; s++)
            part[card.group->sums[s].to] += part[card.group->sums[s].from];
        NEED(mine[i] == part[0]);
    }
    card.checked++;
}

static void sum_parts(const struct op *o)
{
    for (int64_t i = o->from; i < o->from + o->count; i++) {
        float v[LS_CUDA_PARTS];
        for (int p = 0; p < o->parts.n; p++)
            v[p] = o->parts.part[p][i];
        for (int s = 0; s + 1 < o->parts.n; s++)
            v[o->parts.to[s]] += v[o->parts.from[s]];
        for (int p = 0; p < o->parts.n; p++)
            o->parts.part[p][i] = v[0];
    }
}

static void stage(int cut, uint64_t times)
{
    const struct ls_peers_cut *c = &cuts[cut];
    memcpy(&shared->staged[times % 2][card.rank][c->first], &shared->grads[card.rank][c->first],
           c->count * sizeof(float));
    atomic_fetch_add(&shared->staged_times[cut], 1);
}

static bool unstage(int cut, uint64_t times)
{
    const struct ls_peers_cut *c = &cuts[cut];
    if (atomic_load(&shared->staged_times[cut]) < times * (uint64_t)card.size)
        return false;
    for (size_t i = c->first; i < c->first + c->count; i++) {
        float v[MOST_RANKS];
        for (int r = 0; r < card.size; r++)
            v[r] = shared->staged[times % 2][r][i];
        for (int s = 0; s < card.group->n_sums; s++)
            v[card.group->sums[s].to] += v[card.group->sums[s].from];
        shared->grads[card.rank][i] = v[0];
    }
    return true;
}

/* What a rank puts into its part of its own gradients. */
static float put_value(int rank, uint64_t step)
{
    return (float)(rank + 10 * (int)step);
}

static void put_or_take(const struct op *o)
{
    int rank = o->kind == PUT ? card.rank : o->first;
    for (int i = rank * (FLOATS / card.size); i < (rank + 1) * (FLOATS / card.size); i++)
        if (o->kind == PUT)
            shared->grads[rank][i] = put_value(rank, o->step);
        else
            NEED(shared->grads[rank][i] == put_value(rank, o->step));
}

/* False: it has to wait. */
static bool do_op(const struct op *o)
{
    switch (o->kind) {
    case WAIT:
        return atomic_load(&o->event->completed) >= o->generation;
    case RECORD:
        atomic_store(&o->event->completed, o->generation);
        break;
    case RUN:
        run_nodes(o);
        break;
    case CLEAR:
        memset(shared->grads[card.rank], 0, sizeof shared->grads[0]);
        break;
    case SUM:
        sum_parts(o);
        break;
    case STAGE:
        stage(o->cut, o->generation);
        break;
    case UNSTAGE:
        return unstage(o->cut, o->generation);
    case PUT:
    case TAKE:
        put_or_take(o);
    }
    return true;
}

/* Does what a stream allows, in any order. One that finds nothing to do for a while leaves its core to the others. */
static void *be_card(void *unused)
{
    for (int idle = 0; true; idle++) {
        pthread_mutex_lock(&card.lock);
        int s = (int)roll(3);
        bool stop = card.stop;
        if (card.streams[s].n > 0 && do_op(&card.streams[s].ops[card.streams[s].head])) {
            card.streams[s].head = (card.streams[s].head + 1) % ROOM;
            card.streams[s].n--;
            idle = 0;
        }
        pthread_mutex_unlock(&card.lock);
        if (stop)
            return unused;
        if (idle > 30)
            usleep(20);
        else if (roll(4) == 0)
            sched_yield();
    }
}

static cudaStream_t stream_at(int s)
{
    return (cudaStream_t)&card.streams[s];
}

static cudaError_t enqueue(cudaStream_t stream, struct op o)
{
    pthread_mutex_lock(&card.lock);
    for (int s = 0; s < 3; s++)
        if (stream == stream_at(s)) {
            NEED(card.streams[s].n < ROOM);
            card.streams[s].ops[(card.streams[s].head + card.streams[s].n++) % ROOM] = o;
        }
    pthread_mutex_unlock(&card.lock);
    return cudaSuccess;
}

/* --- CUDA's functions ------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    NEED(card.next_event < EVENTS && (flags & cudaEventDisableTiming));
    *event = (cudaEvent_t)&shared->events[card.rank][card.next_event++];
    card.events++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    NEED(event);
    card.events--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct event *e = (struct event *)event;
    return enqueue(stream,
                   (struct op){.kind = RECORD, .event = e, .generation = atomic_fetch_add(&e->recorded, 1) + 1});
}

/* For what was recorded by now. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct event *e = (struct event *)event;
    return enqueue(stream,
                   (struct op){.kind = flags ? RUN : WAIT, .event = e, .generation = atomic_load(&e->recorded)});
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    struct event *e = (struct event *)event;
    if (atomic_load(&e->completed) >= atomic_load(&e->recorded))
        return cudaSuccess;
    return card.broken ? cudaErrorUnknown : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaErrorUnknown;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    int left = 0;
    pthread_mutex_lock(&card.lock);
    for (int s = 0; s < 3; s++)
        left += stream == stream_at(s) ? card.streams[s].n : 0;
    pthread_mutex_unlock(&card.lock);
    return left == 0 ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    *stream = stream_at(2);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return cudaStreamQuery(stream);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    *value = which == cudaDevAttrIpcEventSupport && device == 0;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    memcpy(handle, &memory, sizeof memory);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags)
{
    if (card.unreachable)
        return cudaErrorPeerAccessUnsupported;
    NEED(flags == cudaIpcMemLazyEnablePeerAccess);
    memcpy(memory, &handle, sizeof *memory);
    card.mapped++;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    NEED(memory && memory != shared->grads[card.rank]);
    card.mapped--;
    return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    memcpy(handle, &event, sizeof event);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    memcpy(event, &handle, sizeof *event);
    card.events++;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    NEED(kind == cudaMemcpyDeviceToHost);
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    NEED(to == shared->grads[card.rank] && value == 0 && bytes == sizeof shared->grads[0]);
    return enqueue(stream, (struct op){.kind = CLEAR});
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorPeerAccessUnsupported ? "no peer access" : "?";
}

void ls_cuda_sum_parts(ls_cuda_stream s, const struct ls_cuda_parts *p, int64_t first, int64_t count)
{
    NEED(first % 4 == 0 && count % 4 == 0 && first + count <= FLOATS);
    if (count > 0)
        enqueue(s, (struct op){.kind = SUM, .parts = *p, .from = first, .count = count});
}

/* --- the rest of the backend -------------------------------------------------------------------------------------- */

struct mark *timeline_begin(struct ls_program *p, cudaStream_t stream)
{
    (void)p;
    (void)stream;
    return NULL;
}

void timeline_end(struct ls_program *p, struct mark *mark, const struct ls_slice *slice)
{
    (void)p;
    (void)mark;
    (void)slice;
}

enum ls_status cuda_check(cudaError_t error, const char *what)
{
    return error == cudaSuccess ? LS_OK : ls_fail(LS_FAILED, "%s: %d", what, (int)error);
}

enum ls_status device_put(void *to, const void *host, size_t bytes)
{
    memcpy(to, host, bytes);
    return LS_OK;
}

void device_leave(void *memory)
{
    card.left += memory == shared->grads[card.rank];
}

enum ls_status program_enqueue(struct ls_program *p, int first, int last)
{
    NEED(first <= last && last <= NODES);
    if (first == last)
        return LS_OK;
    struct op o = {.kind = RUN, .first = first, .last = last, .step = card.step};
    return cuda_check(enqueue(p->device->compute, o), "run");
}

enum ls_status program_feed(struct ls_program *p, const struct ls_run *run, bool input)
{
    (void)p;
    NEED(input == (run->valid > 0));
    card.step = run->step;
    return LS_OK;
}

enum ls_status program_run(struct ls_program *p, int first, int last, const struct ls_run *run)
{
    NEED(run->valid > 0 || first >= END);
    card.step = run->step;
    return first == 0 && last == NODES ? program_enqueue_shared(p) : program_enqueue(p, first, last);
}

void program_fed(struct ls_program *p)
{
    (void)p;
}

void program_forget(struct ls_program *p)
{
    (void)p;
}

bool nccl_there(char *text, size_t room)
{
    snprintf(text, room, "a test's");
    return true;
}

enum ls_status nccl_open(struct collective *s, char *why, size_t room)
{
    s->nccl = (struct nccl *)&card;
    return collective_agree(&s->g, "", why, room);
}

enum ls_status nccl_share(struct collective *s)
{
    return s->n_cuts == CUTS ? LS_OK : LS_FAILED;
}

enum ls_status nccl_sum(struct collective *s, int cut)
{
    uint64_t times = ++card.times[cut];
    enqueue(s->sums, (struct op){.kind = STAGE, .cut = cut, .generation = times});
    return cuda_check(enqueue(s->sums, (struct op){.kind = UNSTAGE, .cut = cut, .generation = times}), "sum");
}

const char *nccl_trouble(const void *collective)
{
    const struct collective *s = collective;
    NEED(s->nccl);
    return NULL;
}

void nccl_close(struct collective *s)
{
    s->nccl = NULL;
}

/* --- a rank ------------------------------------------------------------------------------------------------------- */

struct rank {
    struct ls_comm *comm;
    struct ls_graph g;
    struct device device;
    struct ls_program p;
    struct ls_peers_sum sums[MOST_RANKS];
    int nodes[MOST_RANKS];
    struct ls_peers_group group;
    pthread_t thread;
};

static enum ls_status gather(void *context, const void *mine, size_t bytes, void *all)
{
    struct rank *k = context;
    return ls_comm_allgather(k->comm, mine, bytes, all);
}

static enum ls_status check_wait(void *context, double seconds)
{
    struct rank *k = context;
    return ls_comm_overdue(k->comm, seconds);
}

static enum ls_status settle(void *context, int cut)
{
    (void)context;
    NEED(cut < CUTS);
    return LS_OK;
}

/* An update of parts: each rank reads in the others' memory what they have made there. */
static enum ls_status update(void *context, const struct ls_run *run)
{
    struct rank *k = context;
    cudaStream_t compute = k->device.compute;
    LS_TRY(program_run(&k->p, END, NODES, run));
    enqueue(compute, (struct op){.kind = PUT, .step = run->step});
    LS_TRY(ls_cuda_peers.meet(&k->p));
    for (int r = 0; r < card.size; r++) {
        NEED(ls_cuda_peers.reach(&k->p, r) == shared->grads[r]);
        enqueue(compute, (struct op){.kind = TAKE, .first = r, .step = run->step});
    }
    return ls_cuda_peers.meet(&k->p);
}

static bool in_parts; /* updates are */

static void rank_open(struct rank *k, struct ls_comm *c, enum ls_peers_kind kind, char *why, size_t room)
{
    const struct ls_tree *tree = ls_comm_tree(c);
    *k = (struct rank){.comm = c, .g = {.n_nodes = NODES}};
    card.rank = ls_comm_rank(c);
    card.size = ls_comm_size(c);
    card.random = (unsigned)card.rank * 77u + (unsigned)getpid();
    card.group = &k->group;
    k->device = (struct device){.compute = stream_at(0), .copies = stream_at(1)};
    k->p.device = &k->device;
    k->p.core.g = &k->g;
    for (int i = 0; i < tree->n_sums; i++)
        k->sums[i] = (struct ls_peers_sum){tree->sums[i].to, tree->sums[i].from};
    k->group = (struct ls_peers_group){.rank = card.rank,
                                       .size = card.size,
                                       .nodes = k->nodes,
                                       .sums = k->sums,
                                       .n_sums = tree->n_sums,
                                       .grads = shared->grads[card.rank],
                                       .count = FLOATS,
                                       .gather = gather,
                                       .check_wait = check_wait,
                                       .settle = settle,
                                       .update = in_parts ? update : NULL,
                                       .context = k};
    NEED(pthread_create(&k->thread, NULL, be_card, NULL) == 0);
    NEED(ls_cuda_peers.open(&k->p, kind, &k->group, why, room) == LS_OK);
    for (int i = 0; i < FLOATS; i++)
        NEED(shared->grads[card.rank][i] == 0);
}

static void rank_close(struct rank *k)
{
    pthread_mutex_lock(&card.lock);
    card.stop = true;
    pthread_mutex_unlock(&card.lock);
    pthread_join(k->thread, NULL);
}

/* Enqueue, a step ahead of what is waited for. */
static enum ls_status step(struct rank *k, uint64_t step, cudaEvent_t over[2])
{
    bool some = has_samples(card.rank, step), scarce = false;
    const struct ls_run run = {.step = step, .valid = some ? 4 : 0};
    for (int r = 0; r < card.size; r++)
        scarce = scarce || !has_samples(r, step);
    LS_TRY(ls_cuda_peers.step(&k->p, &run, scarce));
    cudaEventRecord(over[step % 2], k->device.compute);
    return step > 0 ? program_await(&k->p, over[(step + 1) % 2]) : LS_OK;
}

static void sum_steps(struct ls_comm *c, const struct ranks *r)
{
    enum { STEPS = 120 };
    struct rank k;
    char why[256];
    cudaEvent_t over[2];
    const enum ls_peers_kind *kind = r->argument;
    rank_open(&k, c, *kind, why, sizeof why);
    NEED(!*why && card.mapped == (*kind == LS_PEERS_MEMORY ? card.size - 1 : 0));
    NEED(ls_cuda_peers.share(&k.p, cuts, CUTS, END) == LS_OK);
    for (int i = 0; i < 2; i++)
        cudaEventCreateWithFlags(&over[i], cudaEventDisableTiming);
    for (uint64_t s = 0; s < STEPS; s++)
        NEED(step(&k, s, over) == LS_OK);
    ls_cuda_peers.close(&k.p, true);
    NEED(!k.p.collective && !k.device.lost);
    NEED(card.checked == STEPS && card.mapped == 0 && card.left == 0);
    NEED(card.events == 2); /* the test's own */
    rank_close(&k);
    ls_comm_close(c, LS_OK);
}

static void test_sums(void **state)
{
    (void)state;
    static const enum ls_peers_kind kinds[] = {LS_PEERS_MEMORY, LS_PEERS_NCCL};
    static const int sizes[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < 10; i++) {
        memset(shared, 0, sizeof *shared);
        run_ranks((struct ranks){.size = sizes[i / 2], .loud = true, .argument = &kinds[i % 2]}, sum_steps);
    }
}

static void test_updates_in_parts(void **state)
{
    (void)state;
    static const enum ls_peers_kind kind = LS_PEERS_MEMORY;
    in_parts = true;
    for (int size = 2; size <= 8; size *= 2) {
        memset(shared, 0, sizeof *shared);
        run_ranks((struct ranks){.size = size, .loud = true, .argument = &kind}, sum_steps);
    }
    in_parts = false;
}

static void reach_nobody(struct ls_comm *c, const struct ranks *r)
{
    struct rank k;
    char why[256];
    (void)r;
    card.unreachable = ls_comm_rank(c) == 1;
    rank_open(&k, c, LS_PEERS_MEMORY, why, sizeof why);
    NEED(strcmp(why, "rank 1: rank 0's memory cannot be reached (no peer access)") == 0);
    NEED(!k.p.collective && card.mapped == 0 && card.events == 0 && card.left == 0);
    rank_close(&k);
    ls_comm_close(c, LS_OK);
}

static void test_unreachable(void **state)
{
    (void)state;
    memset(shared, 0, sizeof *shared);
    run_ranks((struct ranks){.size = 3, .loud = true}, reach_nobody);
}

/* Rank 1 dies with its work undone: nobody waits for it for ever, and no memory of the others is taken from anybody. Cards
 * whose first word of it is an error leave the last to comm. */
static void lose_one(struct ls_comm *c, const struct ranks *r)
{
    struct rank k;
    char why[256];
    cudaEvent_t over[2];
    enum ls_status st = LS_OK;
    const enum ls_peers_kind *kind = r->argument;
    rank_open(&k, c, *kind, why, sizeof why);
    card.broken = *kind == LS_PEERS_NCCL && card.rank == 0;
    NEED(!*why);
    NEED(ls_cuda_peers.share(&k.p, cuts, CUTS, END) == LS_OK);
    for (int i = 0; i < 2; i++)
        cudaEventCreateWithFlags(&over[i], cudaEventDisableTiming);
    for (uint64_t s = 0; st == LS_OK; s++) {
        if (s == 9 && card.rank == 1) {
            pthread_mutex_lock(&card.lock); /* with the step before not computed to the end */
            kill(getpid(), SIGKILL);
        }
        st = step(&k, s, over);
    }
    NEED(st == LS_PEER_LOST);
    double start = ls_now();
    ls_cuda_peers.close(&k.p, false);
    NEED(ls_now() - start < 60 && !k.p.collective && card.left == (*kind == LS_PEERS_MEMORY));
    NEED(strstr(ls_log_last(), "rank 1 "));
    rank_close(&k);
    ls_comm_close(c, LS_PEER_LOST);
}

static void test_lost(void **state)
{
    (void)state;
    static const enum ls_peers_kind kinds[] = {LS_PEERS_MEMORY, LS_PEERS_NCCL};
    for (int i = 0; i < 2; i++) {
        struct ranks r = {.size = 3, .deadline = 120, .argument = &kinds[i]};
        memset(shared, 0, sizeof *shared);
        start_ranks(&r, lose_one);
        wait_ranks(&r);
        for (int rank = 0; rank < 3; rank++)
            assert_int_equal(r.status[rank], rank == 1 ? SIGKILL : 0);
    }
}

/* An error that is nobody else's is said in the end, and the card is left alone from then on. */
static void fail_alone(struct ls_comm *c, const struct ranks *r)
{
    struct rank k;
    char why[256];
    struct event never = {.recorded = 1};
    (void)r;
    rank_open(&k, c, LS_PEERS_NCCL, why, sizeof why);
    card.broken = true;
    NEED(program_await(&k.p, (cudaEvent_t)&never) == LS_FAILED);
    NEED(strstr(ls_log_last(), "waiting for a step") && k.device.lost);
    ls_cuda_peers.close(&k.p, false);
    NEED(!k.p.collective && program_await(&k.p, (cudaEvent_t)&never) == LS_PEER_LOST);
    rank_close(&k);
    ls_comm_close(c, LS_OK);
}

static void test_error(void **state)
{
    (void)state;
    memset(shared, 0, sizeof *shared);
    run_ranks((struct ranks){.size = 1}, fail_alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),        cmocka_unit_test(test_updates_in_parts),
        cmocka_unit_test(test_unreachable), cmocka_unit_test(test_lost),
        cmocka_unit_test(test_error),
    };
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests_name("cards", tests, NULL, NULL);
}
