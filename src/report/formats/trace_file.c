#define _GNU_SOURCE
#include "report/formats/trace_file.h"
#include "base/log.h"
#include "base/memory.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART_LARGEST ((size_t)1 << 31)
static const char between[] = ",\n", last_line[] = "\n]}\n";

enum ls_status ls_trace_file_open(struct ls_file_writer *w, const char *path, const struct ls_trace_about *about)
{
    char head[256];
    int n = snprintf(head, sizeof head,
                     "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"lockstep %s\",\"first_step\":%" PRIu64
                     ",\"last_step\":%" PRIu64 ",\"ranks\":%d},\"traceEvents\":[\n",
                     about->version ? about->version : "", about->first, about->last, about->ranks);
    LS_TRY(ls_file_writer_open(w, path));
    enum ls_status st = ls_file_writer_put(w, head, (size_t)n);
    if (st != LS_OK)
        ls_file_writer_cancel(w);
    return st;
}

enum ls_status ls_trace_file_next(struct ls_file_writer *w)
{
    return ls_file_writer_put(w, between, sizeof between - 1);
}

enum ls_status ls_trace_file_close(struct ls_file_writer *w)
{
    enum ls_status st = ls_file_writer_put(w, last_line, sizeof last_line - 1);
    if (st != LS_OK) {
        ls_file_writer_cancel(w);
        return st;
    }
    return ls_file_writer_commit(w);
}

/* --- parts ---------------------------------------------------------------------------------------------- */

static int part(const struct dirent *entry)
{
    int rank, end = 0;
    return sscanf(entry->d_name, "trace-rank-%d.json%n", &rank, &end) == 1 && end > 0 && entry->d_name[end] == 0;
}

static void free_list(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

/* Parts, and temporary files of parts. */
static int near_part(const struct dirent *entry)
{
    return strncmp(entry->d_name, "trace-rank-", strlen("trace-rank-")) == 0;
}

void ls_trace_file_remove_parts(const char *folder)
{
    struct dirent **list = NULL;
    int n = scandir(folder, &list, near_part, versionsort);
    for (int i = 0; i < n; i++) {
        char *path = ls_format("%s/%s", folder, list[i]->d_name);
        if (path)
            unlink(path);
        ls_free(path);
    }
    free_list(list, n);
}

static enum ls_status write_part(const char *folder, int rank, const char *text, size_t size,
                                 const struct ls_trace_about *about)
{
    struct ls_file_writer w;
    char *path = ls_format("%s/trace-rank-%d.json", folder, rank);
    enum ls_status st = path ? ls_trace_file_open(&w, path, about) : LS_FAILED;
    ls_free(path);
    LS_TRY(st);
    st = ls_file_writer_put(&w, text, size);
    if (st != LS_OK) {
        ls_file_writer_cancel(&w);
        return st;
    }
    return ls_trace_file_close(&w);
}

/* The events of a part: all but its first and its last line. A part that is not whole is left out. */
static enum ls_status append_part(struct ls_file_writer *w, const char *path, bool *first)
{
    char *data;
    size_t size, tail = sizeof last_line - 1;
    LS_TRY(ls_file_read(path, PART_LARGEST, &data, &size));
    const char *events = memchr(data, '\n', size);
    enum ls_status st = LS_OK;
    if (events && size >= tail && data + size - tail > events && memcmp(data + size - tail, last_line, tail) == 0) {
        events++;
        st = *first ? LS_OK : ls_trace_file_next(w);
        st = st == LS_OK ? ls_file_writer_put(w, events, (size_t)(data + size - tail - events)) : st;
        *first = false;
    }
    ls_free(data);
    return st;
}

static enum ls_status merge(const char *folder, struct dirent **list, int n, const struct ls_trace_about *about)
{
    struct ls_file_writer w;
    bool first = true;
    char *target = ls_format("%s/trace.json", folder);
    enum ls_status st = target ? ls_trace_file_open(&w, target, about) : LS_FAILED;
    ls_free(target);
    LS_TRY(st);
    for (int i = 0; i < n && st == LS_OK; i++) {
        char *path = ls_format("%s/%s", folder, list[i]->d_name);
        st = path ? append_part(&w, path, &first) : LS_FAILED;
        ls_free(path);
    }
    if (st != LS_OK) {
        ls_file_writer_cancel(&w);
        return st;
    }
    return ls_trace_file_close(&w);
}

/* A part that appears while this rank merges belongs to a rank that will merge, too. Whichever of the two renames last may
 * have listed the folder first. So each lists it again after its rename, and merges again where there are more parts. */
enum ls_status ls_trace_file_rescue(const char *folder, int rank, const char *text, size_t size,
                                    const struct ls_trace_about *about)
{
    int merged = -1;
    LS_TRY(write_part(folder, rank, text, size, about));
    for (;;) {
        struct dirent **list = NULL;
        int n = scandir(folder, &list, part, versionsort);
        enum ls_status st = n > merged ? merge(folder, list, n, about) : LS_OK;
        free_list(list, n);
        if (st != LS_OK || n <= merged)
            return st;
        merged = n;
    }
}
