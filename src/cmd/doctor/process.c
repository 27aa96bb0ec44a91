#define _GNU_SOURCE
#include "backend/backend.h"
#include "base/system/cgroup.h"
#include "base/system/machine.h"
#include "cmd/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

/* --- small files ---------------------------------------------------------------------------------------- */

static bool first_line(const char *path, char *line, int room)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool there = fgets(line, room, file) != NULL;
    fclose(file);
    line[there ? strcspn(line, "\n") : 0] = 0;
    return there;
}

static int64_t kib_of(const char *key)
{
    char text[64];
    return ls_machine_value("/proc/meminfo", key, text, sizeof text) ? strtoll(text, NULL, 10) << 10 : 0;
}

/* --- control groups ------------------------------------------------------------------------------------- */

/* The smallest limit of the control group of this process and the groups above it; 0: none. */
static double group_limit(const char *file)
{
    char group[512] = "", path[640], line[64];
    double least = 0;
    if (!ls_machine_value("/proc/self/cgroup", "0:", group, sizeof group))
        return 0;
    char *at = strchr(group, '/'); /* behind "0::" there is one more colon */
    while (at) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", at, file);
        if (first_line(path, line, sizeof line) && strncmp(line, "max", 3) != 0) {
            double value = strtod(line, NULL);
            least = value > 0 && (least == 0 || value < least) ? value : least;
        }
        char *slash = strrchr(at, '/');
        if (!slash || !*at)
            break;
        *slash = 0;
    }
    return least;
}

/* The limit of version 1, for a container whose group appears as the root. */
static double old_limit(const char *path)
{
    char line[64];
    double value = first_line(path, line, sizeof line) ? strtod(line, NULL) : 0;
    return value > 0 && value < 0x1p60 ? value : 0;
}

/* --- parts ---------------------------------------------------------------------------------------------- */

static void take_memory(struct ls_process *v)
{
    double limit = group_limit("memory.max");
    if (limit == 0)
        limit = old_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    v->memory = kib_of("MemTotal");
    v->available = kib_of("MemAvailable");
    if (limit > 0 && (double)v->memory > limit)
        v->memory = (int64_t)limit;
    if (v->available > v->memory)
        v->available = v->memory;
}

static void take_cores(struct ls_process *v)
{
    char line[64];
    CPU_ZERO(&v->cpus);
    sched_getaffinity(0, sizeof v->cpus, &v->cpus);
    ls_topology_read(&v->machine);
    v->quota = ls_cgroup_cpus("", NULL);
    v->load = first_line("/proc/loadavg", line, sizeof line) ? strtod(line, NULL) : 0;
}

/* The file has "always [madvise] never": takes the word in brackets. */
static void take_huge_pages(struct ls_process *v)
{
    char line[128];
    snprintf(v->huge_pages, sizeof v->huge_pages, "unknown");
    if (!first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line))
        return;
    char *open = strchr(line, '['), *close = open ? strchr(open, ']') : NULL;
    if (close)
        snprintf(v->huge_pages, sizeof v->huge_pages, "%.*s", (int)(close - open - 1), open + 1);
}

static int32_t number_of(const char *name)
{
    const char *text = getenv(name);
    long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < 1 << 20 ? (int32_t)n : 0;
}

static bool binds(const char *name)
{
    const char *text = getenv(name);
    return text && *text && strcasecmp(text, "false") != 0;
}

void ls_process_read(struct ls_process *v)
{
    struct utsname system;
    struct statvfs shm;
    struct ls_backend_about about = {.isa = "unknown"};
    *v = (struct ls_process){.pid = (int32_t)getpid(), .host = "unknown"};
    gethostname(v->host, sizeof v->host - 1);
    const struct ls_backend *cpu = ls_backend_find("onednn");
    const char *fault = cpu->fault();
    cpu->about(&about);
    snprintf(v->library, sizeof v->library, "%s", about.library);
    snprintf(v->isa, sizeof v->isa, "%s", about.isa);
    snprintf(v->caution, sizeof v->caution, "%s", fault ? fault : "");
    if (uname(&system) == 0)
        snprintf(v->system, sizeof v->system, "%.20s %.40s", system.sysname, system.release);
    ls_machine_processor(v->processor, sizeof v->processor);
    v->shm = statvfs("/dev/shm", &shm) == 0 && access("/dev/shm", W_OK) == 0
                 ? (int64_t)shm.f_bavail * (int64_t)shm.f_frsize
                 : -1;
    v->omp_threads = number_of("OMP_NUM_THREADS");
    v->omp_limit = number_of("OMP_THREAD_LIMIT");
    v->omp_binds = binds("OMP_PROC_BIND") || binds("GOMP_CPU_AFFINITY");
    take_memory(v);
    take_cores(v);
    take_huge_pages(v);
}

const char *ls_cpus_text(const cpu_set_t *set, char text[64])
{
    int used = 0;
    text[0] = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int last = cpu;
        if (!CPU_ISSET(cpu, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        if (used > 48) {
            snprintf(text + used, 64 - (size_t)used, ",...");
            break;
        }
        used += snprintf(text + used, 64 - (size_t)used, last > cpu ? "%s%d-%d" : "%s%d", used ? "," : "", cpu, last);
        cpu = last;
    }
    return text;
}
