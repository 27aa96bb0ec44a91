#include "launch/slurm.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool ls_slurm_first_host(const char *list, char *host, size_t room)
{
    size_t n = 0;
    for (const char *p = list; *p && *p != ',' && n + 1 < room; p++) {
        if (*p != '[') {
            host[n++] = *p;
            continue;
        }
        const char *end = strchr(p, ']');
        size_t first = strcspn(++p, ",-]");
        if (!end || n + first >= room)
            return false;
        memcpy(host + n, p, first);
        n += first;
        p = end;
    }
    host[n] = 0;
    return n > 0 && n + 1 < room;
}

int ls_slurm_tasks_of(const char *per_node, int node)
{
    for (const char *p = per_node; isdigit((unsigned char)*p);) {
        char *end;
        long tasks = strtol(p, &end, 10), nodes = 1;
        if (strncmp(end, "(x", 2) == 0) {
            nodes = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < nodes)
            return tasks < 1 << 20 ? (int)tasks : -1;
        node -= (int)nodes;
        p = *end == ',' ? end + 1 : end;
    }
    return -1;
}
