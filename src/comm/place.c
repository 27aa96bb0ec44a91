/* Which processes share a node, and which place in the tree each rank takes. */
#include "base/memory.h"
#include "comm/group.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- nodes --------------------------------------------------------------------------------------------------- */

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

/* Processes share a node when they share host name, kernel, /dev/shm and pid namespace. A network namespace is a node,
 * so that traffic between namespaces uses their network. `named` separates nodes in tests. */
uint64_t ls_node_number(const char *host, const char *named)
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

/* --- subgroups ---------------------------------------------------------------------------------------------------- */

static enum ls_status make_subgroup(struct ls_subgroup *k, int replicas, int size)
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

static void release_subgroup(struct ls_subgroup *k)
{
    ls_summer_free(k->summer);
    ls_tree_release(&k->tree);
    ls_free(k->ranks);
    *k = (struct ls_subgroup){0};
}

static bool power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* With hierarchical sums, the ranks of a node take places that form a subtree (algorithms/hier.c). */
static void place_ranks(struct ls_comm *c)
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

enum ls_status ls_subgroups_make(struct ls_comm *c)
{
    LS_TRY(make_subgroup(&c->all, c->o.replicas, c->size));
    place_ranks(c);
    LS_TRY(ls_tree_init_placed(&c->tree, c->o.replicas, c->size, c->all.ranks));
    LS_TRY(make_subgroup(&c->node, c->nodes == 1 ? c->o.replicas : c->locals, c->locals));
    LS_TRY(make_subgroup(&c->across, c->nodes, c->nodes));
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

void ls_subgroups_release(struct ls_comm *c)
{
    release_subgroup(&c->all);
    release_subgroup(&c->node);
    release_subgroup(&c->across);
    ls_tree_release(&c->tree);
}
