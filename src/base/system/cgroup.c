#define _GNU_SOURCE
#include "base/system/cgroup.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 16384 };

/* One mount of a cgroup hierarchy: the cgroup `root` is visible at the folder `point`. */
struct mount {
    char root[PATH_MAX], point[PATH_MAX];
    bool v2;
};

/* The smallest quota found so far. */
struct quota {
    double cpus; /* 0: none yet */
    char group[PATH_MAX];
};

/* --- small files ------------------------------------------------------------------------------------------- */

static bool first_line(const char *folder, const char *name, char line[64])
{
    char path[3 * PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool there = file && fgets(line, 64, file);
    if (file)
        fclose(file);
    return there;
}

/* Returns the quota of one cgroup in cores, or 0. */
static double quota_of(const char *folder, bool v2)
{
    char line[64], *rest;
    double quota = 0, period = 0;
    if (v2 && first_line(folder, "cpu.max", line)) { /* "max 100000", "150000 100000" */
        quota = strtod(line, &rest);
        period = strtod(rest, NULL);
    } else if (!v2 && first_line(folder, "cpu.cfs_quota_us", line)) { /* -1: no quota */
        quota = strtod(line, NULL);
        period = first_line(folder, "cpu.cfs_period_us", line) ? strtod(line, NULL) : 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* --- the cgroup of this process ------------------------------------------------------------------------------ */

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",\n") == n && strncmp(list, word, n) == 0)
            return true;
    return false;
}

/* Decodes octal escapes: "\040" is a space. */
static void unescape(const char *text, char out[PATH_MAX])
{
    size_t n = 0;
    while (*text && n < PATH_MAX - 1) {
        bool octal = text[0] == '\\' && strspn(text + 1, "01234567") >= 3;
        out[n++] = octal ? (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0')) : *text;
        text += octal ? 4 : 1;
    }
    out[n] = 0;
}

/* Parses a line of mountinfo: "36 35 98:0 /root /point options [more ...] - type source options". A v1 hierarchy must be that
 * of the controller, "cpu" or "memory". A v2 hierarchy has all controllers. */
static bool parse_mount(char *line, const char *controller, struct mount *m)
{
    char *fields[64], *save = NULL, *dash;
    int n = 0, at = 6;
    for (char *word = strtok_r(line, " \n", &save); word && n < 64; word = strtok_r(NULL, " \n", &save))
        fields[n++] = word;
    while (at < n && strcmp(fields[at], "-") != 0)
        at++;
    if (at + 3 >= n)
        return false;
    dash = fields[at + 1];
    m->v2 = strcmp(dash, "cgroup2") == 0;
    if (!m->v2 && (strcmp(dash, "cgroup") != 0 || !has_word(fields[at + 3], controller)))
        return false;
    unescape(fields[3], m->root);
    unescape(fields[4], m->point);
    return true;
}

/* Finds the cgroup of this process in the v2 or v1 hierarchy: "0::/path", "4:cpu,cpuacct:/path". */
static bool own_group(const char *root, const char *controller, bool v2, char group[PATH_MAX])
{
    char line[PATH_MAX + 256];
    bool found = false;
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        found = v2 ? names[1] == 0 && strncmp(line, "0:", 2) == 0 : has_word(names + 1, controller);
        snprintf(group, PATH_MAX, "%.*s", (int)strcspn(path, "\n"), path);
    }
    if (file)
        fclose(file);
    return found;
}

/* Returns the path of a cgroup relative to the mount's root, or "" if the cgroup is not visible in this mount. */
static const char *below(const char *group, const char *mount_root)
{
    size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    bool inside = strncmp(group, mount_root, n) == 0 && (group[n] == '/' || !group[n]);
    return inside && !strstr(group, "/..") ? group + n : "";
}

typedef void visit(void *context, const char *folder, bool v2);

/* Visits the folders of the cgroup and of its ancestors that are visible in one mount. */
static void visit_groups(const char *root, const char *controller, const struct mount *m, visit *see, void *context)
{
    char group[PATH_MAX], folder[3 * PATH_MAX];
    if (!own_group(root, controller, m->v2, group))
        return;
    size_t top = (size_t)snprintf(folder, sizeof folder, "%s%s", root, m->point);
    if (top >= sizeof folder)
        return;
    snprintf(folder + top, sizeof folder - top, "%s", below(group, m->root));
    for (;;) {
        see(context, folder, m->v2);
        char *slash = strrchr(folder + top, '/');
        if (!slash)
            break;
        *slash = 0;
    }
}

static void visit_all(const char *root, const char *controller, visit *see, void *context)
{
    char line[LINE];
    struct mount m;
    snprintf(line, sizeof line, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(line, "re");
    while (file && fgets(line, sizeof line, file))
        if (strstr(line, " - cgroup") && parse_mount(line, controller, &m))
            visit_groups(root, controller, &m, see, context);
    if (file)
        fclose(file);
}

static void see_quota(void *context, const char *folder, bool v2)
{
    struct quota *least = context;
    double cpus = quota_of(folder, v2);
    if (cpus > 0 && (least->cpus == 0 || cpus < least->cpus)) {
        least->cpus = cpus;
        snprintf(least->group, sizeof least->group, "%.*s", PATH_MAX - 1, folder);
    }
}

double ls_cgroup_cpus(const char *root, uint64_t *group)
{
    struct quota least = {0};
    visit_all(root, "cpu", see_quota, &least);
    uint64_t hash = 14695981039346656037u;
    for (const char *c = least.group; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    if (group)
        *group = hash;
    return least.cpus;
}

int ls_cgroup_cores(const char *root, int cores)
{
    double cpus = ls_cgroup_cpus(root, NULL);
    int paid = cpus > 0 && cpus < cores ? (int)ceil(cpus - 1e-6) : cores;
    return paid > 1 ? paid : 1;
}

/* --- memory -------------------------------------------------------------------------------------------------- */

/* The bytes of cached files that the kernel gives up first: a line of memory.stat. */
static double cached_bytes(const char *folder, const char *key)
{
    char path[3 * PATH_MAX + 64], line[128];
    double bytes = 0;
    size_t n = strlen(key);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            bytes = strtod(line + n, NULL);
    if (file)
        fclose(file);
    return bytes;
}

static void see_memory(void *context, const char *folder, bool v2)
{
    double *least = context;
    char limit[64], used[64];
    if (!first_line(folder, v2 ? "memory.max" : "memory.limit_in_bytes", limit) || strncmp(limit, "max", 3) == 0 ||
        !first_line(folder, v2 ? "memory.current" : "memory.usage_in_bytes", used))
        return;
    double left =
        strtod(limit, NULL) - strtod(used, NULL) + cached_bytes(folder, v2 ? "inactive_file" : "total_inactive_file");
    left = left > 0 ? left : 0;
    /* v1 writes "no limit" as a number near 2^63 */
    if (strtod(limit, NULL) < 4e18 && (*least < 0 || left < *least))
        *least = left;
}

bool ls_cgroup_memory(const char *root, uint64_t *left)
{
    double least = -1;
    visit_all(root, "memory", see_memory, &least);
    if (least >= 0)
        *left = (uint64_t)least;
    return least >= 0;
}
