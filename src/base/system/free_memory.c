#define _GNU_SOURCE
#include "base/system/free_memory.h"
#include "base/system/cgroup.h"
#include "base/system/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

double ls_free_memory(void)
{
    uint64_t left;
    char value[64];
    double bytes =
        ls_machine_value("/proc/meminfo", "MemAvailable", value, sizeof value) ? 1024 * strtod(value, NULL) : 0;
    if (ls_cgroup_memory("", &left) && (bytes == 0 || (double)left < bytes))
        bytes = (double)left;
    return bytes;
}

double ls_free_address_space(void)
{
    struct rlimit limit;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    double left = (double)limit.rlim_cur - (double)pages * (double)sysconf(_SC_PAGESIZE);
    return left > 1 ? left : 1;
}
