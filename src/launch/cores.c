#define _GNU_SOURCE
#include "launch/cores.h"

#include <stdio.h>
#include <stdlib.h>

struct core {
    int cpu, package, core;
};

static int read_topology(int cpu, const char *what)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

static int neighbours(const void *a, const void *b)
{
    const struct core *x = a, *y = b;
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return x->cpu - y->cpu;
}

bool ls_cores_split(int n, cpu_set_t *shares)
{
    struct core cores[CPU_SETSIZE];
    cpu_set_t all;
    int count = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < n)
        return false;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all))
            cores[count++] =
                (struct core){cpu, read_topology(cpu, "physical_package_id"), read_topology(cpu, "core_id")};
    qsort(cores, (size_t)count, sizeof *cores, neighbours);
    for (int i = 0; i < n; i++) {
        CPU_ZERO(&shares[i]);
        for (int k = count * i / n; k < count * (i + 1) / n; k++)
            CPU_SET(cores[k].cpu, &shares[i]);
    }
    return true;
}
