/* The only file that includes hwloc. */
#define _GNU_SOURCE
#include "cmd/doctor/doctor.h"

#include <unistd.h>

#ifdef LS_HWLOC

#include <hwloc.h>

static int32_t count(hwloc_topology_t t, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(t, type);
    return n > 0 ? n : 0;
}

static int64_t cache_bytes(hwloc_topology_t t, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(t, type, 0);
    return cache ? (int64_t)cache->attr->cache.size : 0;
}

/* The whole machine, including cores that this process may not use. */
static bool read_hwloc(struct ls_topology *t)
{
    hwloc_topology_t h;
    if (hwloc_topology_init(&h) != 0)
        return false;
    bool there =
        hwloc_topology_set_flags(h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 && hwloc_topology_load(h) == 0;
    if (there)
        *t = (struct ls_topology){
            .sockets = count(h, HWLOC_OBJ_PACKAGE),
            .numa = count(h, HWLOC_OBJ_NUMANODE),
            .cores = count(h, HWLOC_OBJ_CORE),
            .cpus = count(h, HWLOC_OBJ_PU),
            .usable = hwloc_bitmap_weight(hwloc_topology_get_allowed_cpuset(h)),
            .l2 = cache_bytes(h, HWLOC_OBJ_L2CACHE),
            .l3 = cache_bytes(h, HWLOC_OBJ_L3CACHE),
        };
    hwloc_topology_destroy(h);
    return there && t->cpus > 0;
}

const char *ls_topology_source(void)
{
    return "hwloc";
}

#else

static bool read_hwloc(struct ls_topology *t)
{
    (void)t;
    return false;
}

const char *ls_topology_source(void)
{
    return "/sys";
}

#endif

/* The number at the start of a file, with a suffix of K or M; -1: none. */
static int64_t number_in(const char *folder, int which, const char *file_name)
{
    char path[128], unit = 0;
    long long value = -1;
    snprintf(path, sizeof path, "/sys/devices/system/%s%d/%s", folder, which, file_name);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%lld%c", &value, &unit) < 1)
        value = -1;
    fclose(file);
    return value < 0 ? -1 : unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

/* Counts cores and sockets by their first cpu. */
static void read_files(struct ls_topology *t)
{
    enum { SOCKETS = 256, CACHES = 8 };
    bool socket_seen[SOCKETS] = {false};
    int configured = (int)sysconf(_SC_NPROCESSORS_CONF);
    *t = (struct ls_topology){.cpus = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)};
    for (int cpu = 0; cpu < configured; cpu++) {
        int64_t socket = number_in("cpu/cpu", cpu, "topology/physical_package_id");
        t->cores += number_in("cpu/cpu", cpu, "topology/thread_siblings_list") == cpu;
        if (socket >= 0 && socket < SOCKETS && !socket_seen[socket]) {
            socket_seen[socket] = true;
            t->sockets++;
        }
    }
    while (number_in("node/node", t->numa, "cpulist") >= 0)
        t->numa++;
    for (int i = 0; i < CACHES; i++) {
        int64_t level = number_in("cpu/cpu0/cache/index", i, "level");
        if (level == 2 || level == 3)
            *(level == 2 ? &t->l2 : &t->l3) = number_in("cpu/cpu0/cache/index", i, "size");
    }
    t->usable = t->cpus;
}

void ls_topology_read(struct ls_topology *t)
{
    if (!read_hwloc(t))
        read_files(t);
    t->cores = t->cores > 0 ? t->cores : t->cpus;
    t->sockets = t->sockets > 0 ? t->sockets : 1;
    t->numa = t->numa > 0 ? t->numa : 1;
}
