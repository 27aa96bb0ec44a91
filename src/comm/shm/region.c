/* Memory that the processes of a node share. Each process makes a memfd, which the others map through /proc/PID/fd. It
 * needs no space in /dev/shm and disappears with the processes. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "comm/group.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct ls_region_ref ls_region_find(const struct ls_comm *c, const void *data, size_t bytes)
{
    uintptr_t at = (uintptr_t)data;
    for (int i = 0; i < c->n_regions; i++) {
        const struct ls_region *r = &c->regions[i];
        uintptr_t from = (uintptr_t)r->mine;
        if (r->base && at >= from && at - from <= r->bytes && bytes <= r->bytes - (at - from))
            return (struct ls_region_ref){.region = i, .offset = at - from};
    }
    return (struct ls_region_ref){.region = -1};
}

static char *map_fd(int fd, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* This process's memory; *fd is -1 where it is ordinary memory. */
static enum ls_status make(struct ls_comm *c, struct ls_region *r, int *fd)
{
    void *p;
    *fd = -1;
    if (c->segment) {
        *fd = memfd_create("lockstep", MFD_CLOEXEC);
        if (*fd >= 0 && ftruncate(*fd, (off_t)r->bytes) == 0)
            r->mine = map_fd(*fd, r->bytes);
        if (r->mine)
            return LS_OK;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
    LS_TRY(ls_region_map(r->bytes, &p));
    r->mine = p;
    return LS_OK;
}

static char *map_peer(const struct ls_comm *c, int index, int fd, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)c->peers[c->node.ranks[index]].pid, fd);
    int own = fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (own < 0)
        return NULL;
    char *p = map_fd(own, bytes);
    close(own);
    return p;
}

static void unmap_peers(struct ls_region *r)
{
    for (int i = 0; r->base && i < r->n; i++)
        if (i != r->me && r->base[i])
            munmap(r->base[i], r->sizes[i]);
    ls_free(r->base);
    ls_free(r->sizes);
    r->base = NULL;
    r->sizes = NULL;
}

/* What the processes exchange. */
struct offered {
    int64_t fd; /* in the second exchange: 1 if it could map all others */
    uint64_t bytes;
};

/* The region is shared by all processes of the node or by none. */
static enum ls_status share(struct ls_comm *c, struct ls_region *r, int fd, struct offered *offers)
{
    struct offered mine = {fd, r->bytes};
    bool all = true;
    LS_TRY(ls_comm_allgather(c, &mine, sizeof mine, offers));
    r->base = ls_alloc((size_t)r->n, sizeof *r->base);
    r->sizes = ls_alloc((size_t)r->n, sizeof *r->sizes);
    mine.fd = c->segment && r->base && r->sizes;
    for (int i = 0; mine.fd && i < r->n; i++) {
        const struct offered *its = &offers[c->node.ranks[i]];
        r->sizes[i] = its->bytes;
        r->base[i] = i == r->me ? r->mine : map_peer(c, i, (int)its->fd, its->bytes);
        mine.fd = r->base[i] && its->fd >= 0;
    }
    LS_TRY(ls_comm_allgather(c, &mine, sizeof mine, offers));
    for (int i = 0; i < r->n; i++)
        all &= offers[c->node.ranks[i]].fd == 1;
    if (!all)
        unmap_peers(r);
    return LS_OK;
}

static void release(struct ls_region *r)
{
    unmap_peers(r);
    if (r->mine)
        munmap(r->mine, r->bytes);
    *r = (struct ls_region){0};
}

enum ls_status ls_region_take(struct ls_comm *c, size_t bytes, bool reserve, int *region)
{
    struct ls_region r = {.bytes = (bytes + PAGE - 1) / PAGE * PAGE + (bytes == 0 ? PAGE : 0)};
    int fd;
    r.n = c->node.size;
    r.me = c->node.me;
    if (c->n_regions == LS_MAX_REGIONS)
        return ls_fail(LS_FAILED, "more than %d shared regions are asked for", LS_MAX_REGIONS);
    struct offered *offers = ls_alloc((size_t)c->size, sizeof *offers);
    if (!offers)
        return LS_FAILED;
    enum ls_status st = make(c, &r, &fd);
    /* This process touches its memory first, so that the pages are close to its processor. */
    if (st == LS_OK && fd >= 0 && !reserve)
        madvise(r.mine, r.bytes, MADV_POPULATE_WRITE);
    if (st == LS_OK && c->size > 1)
        st = share(c, &r, fd, offers);
    if (fd >= 0)
        close(fd);
    ls_free(offers);
    if (st != LS_OK) {
        release(&r);
        return st;
    }
    pthread_mutex_lock(&c->drive);
    *region = c->n_regions;
    c->regions[c->n_regions++] = r;
    pthread_mutex_unlock(&c->drive);
    return LS_OK;
}

enum ls_status ls_comm_region(struct ls_comm *c, size_t bytes, void **memory)
{
    int region;
    LS_TRY(ls_region_take(c, bytes, false, &region));
    *memory = c->regions[region].mine;
    return LS_OK;
}

void ls_regions_release(struct ls_comm *c)
{
    for (int i = 0; i < c->n_regions; i++)
        release(&c->regions[i]);
    c->n_regions = 0;
}
