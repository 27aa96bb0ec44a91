#define _GNU_SOURCE
#include "checkpoint/lock_holder.h"
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT = LS_LOCK_TEXT, FIELD = LS_LOCK_FIELD };

/* Returns the value of the line "key: value", or "". */
static const char *field(const char *text, const char *key, char value[FIELD])
{
    size_t n = strlen(key);
    value[0] = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, key, n) == 0 && strncmp(line + n, ": ", 2) == 0) {
            snprintf(value, FIELD, "%.*s", (int)strcspn(line + n + 2, "\n"), line + n + 2);
            break;
        }
    return value;
}

static void add(char text[TEXT], const char *key, const char *value)
{
    size_t at = strlen(text);
    char line[FIELD + 16];
    int n = snprintf(line, sizeof line, "%s: %.*s", key, FIELD - 1, value);
    if (!*value || n >= (int)sizeof line || at + (size_t)n + 2 > TEXT)
        return;
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    memcpy(text + at, line, (size_t)n);
    memcpy(text + at + n, "\n", 2);
}

static void first_line(const char *path, char line[FIELD])
{
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, FIELD, file))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    if (file)
        fclose(file);
}

/* Reads state and start time of a process from /proc/PID/stat. */
static bool read_process(const char *pid, char *state, char start[FIELD])
{
    char path[FIELD + 16], line[1024];
    unsigned long long ticks;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = 0;
    const char *after = strrchr(line, ')');
    if (!after || sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                         state, &ticks) != 2)
        return false;
    snprintf(start, FIELD, "%llu", ticks);
    return true;
}

static void name_user(char name[FIELD])
{
    struct passwd entry, *found = NULL;
    char room[4096];
    snprintf(name, FIELD, "%ld", (long)getuid());
    if (getpwuid_r(getuid(), &entry, room, sizeof room, &found) == 0 && found)
        snprintf(name, FIELD, "%s", entry.pw_name);
}

/* Leaves out the secret token, because others can read the file. */
static void name_command(char *const *argv, char line[FIELD])
{
    size_t used = 0;
    bool secret = false;
    line[0] = 0;
    for (; argv && *argv && used < FIELD - 1; argv++) {
        const char *word = secret ? "..." : strncmp(*argv, "--token=", 8) == 0 ? "--token=..." : *argv;
        used += (size_t)snprintf(line + used, FIELD - used, "%s%s", used ? " " : "", word);
        secret = strcmp(*argv, "--token") == 0;
    }
}

static void name_space(char value[FIELD])
{
    ssize_t n = readlink("/proc/self/ns/pid", value, FIELD - 1);
    value[n > 0 ? n : 0] = 0;
}

void ls_lock_holder_compose(char text[TEXT], char *const *argv, char id[32])
{
    char value[FIELD], state;
    uint64_t random = 0;
    time_t time_now = time(NULL);
    struct tm date;
    text[0] = 0;
    if (gethostname(value, sizeof value) == 0)
        add(text, "host", value);
    snprintf(value, sizeof value, "%ld", (long)getpid());
    add(text, "pid", value);
    if (read_process(value, &state, value))
        add(text, "start", value);
    first_line("/proc/sys/kernel/random/boot_id", value);
    add(text, "boot", value);
    name_space(value);
    add(text, "pids", value);
    name_user(value);
    add(text, "user", value);
    add(text, "job", ls_launch_job());
    if (localtime_r(&time_now, &date) && strftime(value, sizeof value, "%Y-%m-%d %H:%M:%S %Z", &date) > 0)
        add(text, "since", value);
    name_command(argv, value);
    add(text, "command", value);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)getpid() << 32 ^ (uint64_t)time_now;
    snprintf(id, 32, "%016" PRIx64, random);
    add(text, "id", id);
}

void ls_lock_holder_describe(const char *text, char line[LS_LOCK_LINE])
{
    static const struct {
        const char *key, *before;
    } parts[] = {{"pid", " (pid "}, {"user", ", user "}, {"job", ", job "}, {"since", ", since "}, {"command", ": "}};
    char value[FIELD];
    size_t used = (size_t)snprintf(line, LS_LOCK_LINE, "host %s", *field(text, "host", value) ? value : "unknown");
    for (size_t i = 0; i < sizeof parts / sizeof *parts && *field(text, "pid", value); i++)
        if (*field(text, parts[i].key, value))
            used += (size_t)snprintf(line + used, LS_LOCK_LINE - used, "%s%.200s", parts[i].before, value);
    if (*field(text, "pid", value))
        snprintf(line + used, LS_LOCK_LINE - used, ")");
}

bool ls_lock_holder_read(const char *path, struct ls_lock_holder *h)
{
    struct stat s;
    size_t size;
    if (lstat(path, &s) == 0 &&
        !S_ISREG(s.st_mode)) { /* a symbolic link too: a dangling one exists for link() but not for open() */
        snprintf(h->why, sizeof h->why, "%s, not a regular file", ls_file_kind(s.st_mode));
        errno = EINVAL;
        return false;
    }
    int fd = ls_file_open(path, &size, h->why); /* open() makes an NFS client ask the server */
    ssize_t n = fd >= 0 ? read(fd, h->text, TEXT - 1) : -1;
    bool good = n >= 0 && fstat(fd, &s) == 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    if (!good)
        return false;
    h->text[n] = 0;
    h->touched = s.st_mtim;
    return true;
}

enum ls_lock_verdict ls_lock_holder_look(const char *text)
{
    char theirs[FIELD], mine[FIELD], state;
    first_line("/proc/sys/kernel/random/boot_id", mine);
    if (!*mine || strcmp(field(text, "boot", theirs), mine) != 0)
        return LS_LOCK_UNSEEN;
    name_space(mine);
    if (!*mine || strcmp(field(text, "pids", theirs), mine) != 0)
        return LS_LOCK_UNSEEN;
    long pid = strtol(field(text, "pid", theirs), NULL, 10);
    if (pid < 1)
        return LS_LOCK_UNSEEN;
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return LS_LOCK_STALE;
    if (!read_process(theirs, &state, mine))
        return LS_LOCK_UNSEEN;
    if (state == 'Z' || state == 'X' || strcmp(field(text, "start", theirs), mine) != 0)
        return LS_LOCK_STALE;
    return LS_LOCK_LIVE;
}
