/* Messages between the devices of queued.h, which includes this: a file each, in the folder queued.wires.
 *   - A message is sent as early as can be, with what is enqueued before it.
 *   - It arrives as late as can be: its memory has NaN from `receive` on, and values when `accept` is done. */
#ifndef LS_TESTS_QUEUED_WIRES_H
#define LS_TESTS_QUEUED_WIRES_H

static struct {
    struct ls_peers_group group;
    int peers[2];
    uint64_t sent[2], asked[2], accepted[2]; /* messages */
    struct {
        void *to;
        size_t bytes;
    } rooms[2][LS_WIRE_AHEAD];
} queued_ways;

static inline void queued_message(char *path, size_t room, int from, int to, uint64_t number)
{
    int n = snprintf(path, room, "%s/%d-%d-%llu", queued.wires, from, to, (unsigned long long)number);
    QUEUED_NEED(n > 0 && (size_t)n < room);
}

static enum ls_status queued_open_wires(struct ls_program *p, const struct ls_peers_group *group, const int peers[2],
                                        char *why, size_t room)
{
    (void)p;
    snprintf(why, room, "%s", queued.wires ? "" : "the test says so");
    memset(&queued_ways, 0, sizeof queued_ways);
    queued_ways.group = *group;
    for (int side = 0; side < 2; side++) {
        QUEUED_NEED(peers[side] == LS_NONE || (peers[side] >= 0 && peers[side] < group->size));
        queued_ways.peers[side] = peers[side];
    }
    return LS_OK;
}

static enum ls_status queued_wire_send(struct ls_program *p, int side, const void *from, size_t bytes)
{
    char path[300], fresh[300];
    (void)p;
    QUEUED_NEED(queued_ways.peers[side] != LS_NONE && queued_holds(from, bytes / sizeof(float)));
    queued_work(queued.n);
    LS_TRY(queued.lost);
    queued_message(path, sizeof path, queued_ways.group.rank, queued_ways.peers[side], queued_ways.sent[side]++);
    snprintf(fresh, sizeof fresh, "%s/new-%d", queued.wires, queued_ways.group.rank);
    queued_open(true);
    FILE *file = fopen(fresh, "wb");
    QUEUED_NEED(file && fwrite(from, 1, bytes, file) == bytes && fclose(file) == 0 && rename(fresh, path) == 0);
    queued_open(false);
    queued.messages++;
    return LS_OK;
}

static enum ls_status queued_wire_receive(struct ls_program *p, int side, void *to, size_t bytes)
{
    uint64_t number = queued_ways.asked[side]++;
    QUEUED_NEED(queued_ways.peers[side] != LS_NONE && queued_holds(to, bytes / sizeof(float)));
    QUEUED_NEED(number - queued_ways.accepted[side] < LS_WIRE_AHEAD);
    queued_ways.rooms[side][number % LS_WIRE_AHEAD].to = to;
    queued_ways.rooms[side][number % LS_WIRE_AHEAD].bytes = bytes;
    return queued_add_work(
        (struct queued_work){.kind = QUEUED_RECEIVE, .p = p, .to = to, .from = to, .count = bytes / sizeof(float)});
}

static enum ls_status queued_wire_accept(struct ls_program *p, int side)
{
    uint64_t number = queued_ways.accepted[side]++;
    QUEUED_NEED(number < queued_ways.asked[side]);
    return queued_add_work((struct queued_work){.kind = QUEUED_ACCEPT, .p = p, .mark = side, .count = number});
}

/* Waits for the message; a rank that is lost ends the wait. */
static inline void queued_take_message(const struct queued_work *w)
{
    const struct ls_peers_group *g = &queued_ways.group;
    size_t bytes = queued_ways.rooms[w->mark][w->count % LS_WIRE_AHEAD].bytes;
    char path[300];
    FILE *file;
    queued_message(path, sizeof path, queued_ways.peers[w->mark], g->rank, w->count);
    for (int tries = 0; !(file = fopen(path, "rb")); tries++) {
        queued.lost = g->check_wait(g->context, 1e-3 * tries);
        if (queued.lost != LS_OK)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    QUEUED_NEED(fread(queued_ways.rooms[w->mark][w->count % LS_WIRE_AHEAD].to, 1, bytes, file) == bytes);
    QUEUED_NEED(fgetc(file) == EOF && fclose(file) == 0 && unlink(path) == 0);
}

static double queued_wires_waited(struct ls_program *p)
{
    (void)p;
    QUEUED_NEED(queued.n == 0);
    return 0;
}

static void queued_close_wires(struct ls_program *p)
{
    (void)p;
    for (int i = 0; i < queued.n && queued.lost == LS_OK; i++)
        if (queued.list[i].kind == QUEUED_ACCEPT)
            queued.lost = LS_PEER_LOST;
    if (queued.lost != LS_OK)
        queued.n = 0; /* never to be done */
}

static const struct ls_backend_wires queued_wires = {
    .open = queued_open_wires,
    .send = queued_wire_send,
    .receive = queued_wire_receive,
    .accept = queued_wire_accept,
    .waited = queued_wires_waited,
    .close = queued_close_wires,
};

#endif
