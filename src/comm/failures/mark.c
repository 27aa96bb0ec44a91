/* Compares collectives between ranks (COMM-5). */
#include "base/log.h"
#include "comm/group.h"

#include <inttypes.h>
#include <stdio.h>

static uint16_t codec_number(const struct ls_codec *codec)
{
    uint32_t hash = 2166136261u;
    for (const char *s = codec ? codec->name : ""; *s; s++)
        hash = (hash ^ (unsigned char)*s) * 16777619u;
    return (uint16_t)(hash ^ hash >> 16);
}

void ls_mark_begin(struct ls_comm *c, const struct ls_work *w)
{
    bool rooted = w->kind == LS_WORK_REDUCE || w->kind == LS_WORK_BROADCAST;
    c->collective++;
    c->mark = (struct ls_mark){.collective = c->collective,
                               .bytes = w->kind == LS_WORK_BARRIER ? 0 : w->bytes,
                               .call = w->call,
                               .root = rooted ? w->peer : -1,
                               .codec = codec_number(w->codec),
                               .kind = (uint8_t)w->kind};
    if (!c->segment)
        return;
    struct ls_slot *slot = ls_shm_slot(c->segment, c->local);
    atomic_store_explicit(&slot->collective, c->collective, memory_order_relaxed);
    atomic_store_explicit(&slot->marked, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    slot->mark = c->mark;
    atomic_store_explicit(&slot->marked, c->collective, memory_order_release);
}

static void describe(const struct ls_comm *c, const struct ls_mark *m, char *text, size_t room)
{
    if (c->o.describe && m->call.number)
        c->o.describe(&m->call, text, room);
    else
        snprintf(text, room, "came with %s of %" PRIu64 " bytes", ls_work_name((enum ls_work_kind)m->kind), m->bytes);
}

/* The sentence is the same, whichever of the two ranks finds the difference. */
enum ls_status ls_mark_refuse(struct ls_comm *c, int one, const struct ls_mark *its, int other,
                              const struct ls_mark *others)
{
    char first[128], second[128], number[64] = "";
    if (one < other)
        return ls_mark_refuse(c, other, others, one, its);
    describe(c, its, first, sizeof first);
    describe(c, others, second, sizeof second);
    const char *codec = its->codec != others->codec ? ", compressed in another way" : "";
    if (!c->o.describe)
        return ls_group_lose(c, LS_PEER_LOST,
                             "rank %d %s where rank %d %s%s: start all ranks with the same program, model and options",
                             one, first, other, second, codec);
    if (its->call.number)
        snprintf(number, sizeof number, "call %" PRIu64 ": ", its->call.number);
    return ls_group_lose(
        c, LS_USAGE,
        "%srank %d %s where rank %d %s%s; all ranks must make the same calls with the same sizes in the same order: "
        "look for a branch, a size or a setting that differs between ranks",
        number, one, first, other, second, codec);
}

enum ls_status ls_mark_check(struct ls_comm *c, int rank, const struct ls_mark *its)
{
    return ls_mark_same(its, &c->mark) ? LS_OK : ls_mark_refuse(c, rank, its, c->rank, &c->mark);
}

enum ls_status ls_mark_compare(struct ls_comm *c, int rank, const struct ls_mark *its)
{
    bool waiting = c->current && c->current->kind < LS_WORK_SEND;
    return waiting && its->collective == c->mark.collective ? ls_mark_check(c, rank, its) : LS_OK;
}

enum ls_status ls_mark_look(struct ls_comm *c)
{
    for (int i = 0; c->segment && i < c->node.size; i++) {
        struct ls_slot *slot = ls_shm_slot(c->segment, i);
        uint64_t before = atomic_load_explicit(&slot->marked, memory_order_acquire);
        struct ls_mark its = slot->mark;
        atomic_thread_fence(memory_order_acquire);
        if (before != 0 && before == atomic_load_explicit(&slot->marked, memory_order_relaxed))
            LS_TRY(ls_mark_compare(c, c->node.ranks[i], &its));
    }
    return LS_OK;
}
