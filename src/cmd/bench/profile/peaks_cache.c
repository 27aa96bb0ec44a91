#include "base/files/cache_dir.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/bench/profile/peaks.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 1 << 20 };

/* Returns a new object; an empty one for a file that is not there or not right. */
static json_t *load(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t error;
    json_t *all = NULL;
    if (ls_file_exists(path) && ls_file_read(path, MOST, &text, &size) == LS_OK)
        all = json_loadb(text, size, 0, &error);
    ls_free(text);
    if (json_is_object(all))
        return all;
    json_decref(all);
    return json_object();
}

static bool take_number(const json_t *entry, const char *key, double *value)
{
    *value = json_number_value(json_object_get(entry, key));
    return *value > 0 && isfinite(*value);
}

bool ls_bench_peaks_recall(const char *key, struct ls_bench_peaks *p)
{
    char *path = ls_cache_path("peaks.json");
    bool muted = ls_log_mute(true);
    json_t *all = path ? load(path) : NULL;
    ls_log_mute(muted);
    const json_t *entry = json_object_get(all, key);
    const char *date = json_string_value(json_object_get(entry, "date"));
    bool found = take_number(entry, "bytes_per_second", &p->bytes) &&
                 take_number(entry, "operations_per_second", &p->operations);
    if (!found)
        *p = (struct ls_bench_peaks){0};
    else
        snprintf(p->date, sizeof p->date, "%s", date ? date : "");
    json_decref(all);
    ls_free(path);
    return found;
}

static enum ls_status save(const char *path, const json_t *all)
{
    struct ls_file_writer w;
    char *slash = strrchr(path, '/'), *text = json_dumps(all, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(6));
    char *folder = slash ? ls_format("%.*s", (int)(slash - path), path) : NULL;
    enum ls_status st = text && folder ? ls_dir_make(folder) : LS_FAILED;
    ls_free(folder);
    if (st == LS_OK)
        st = ls_file_writer_open(&w, path);
    if (st == LS_OK) {
        st = ls_file_writer_put(&w, text, strlen(text));
        if (st == LS_OK)
            st = ls_file_writer_commit(&w);
        else
            ls_file_writer_cancel(&w);
    }
    free(text);
    return st;
}

void ls_bench_peaks_keep(const char *key, const struct ls_bench_peaks *p)
{
    char *path = ls_cache_path("peaks.json");
    bool muted = ls_log_mute(true); /* without a cache they are measured again the next time */
    if (path && ls_file_can_write(path)) {
        json_t *all = load(path);
        json_object_set_new(all, key,
                            json_pack("{s:f, s:f, s:s}", "bytes_per_second", p->bytes, "operations_per_second",
                                      p->operations, "date", p->date));
        save(path, all);
        json_decref(all);
    }
    ls_log_mute(muted);
    ls_free(path);
}
