#define _GNU_SOURCE
#include "data/records/records.h"
#include "base/text/text.h"
#include "base/system/clock.h"
#include "base/files/file.h"
#include "base/system/interrupt.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SCANNERS = 8 };   /* threads; they wait for storage, not for a core */
#define SOON 3.0         /* seconds before a message about progress, and between two */
#define GROWTH 1024      /* samples */
#define OTHER_FILES 2048 /* that the process may have open besides: both parts of the data, connections */

/* --- scanning --------------------------------------------------------------------------------------------------------- */

enum ls_status ls_scan_refuse(struct ls_shard_scan *s, uint64_t offset, const char *format, ...)
{
    int used = snprintf(s->why, sizeof s->why, "at byte %" PRIu64 ": ", offset);
    va_list args;
    va_start(args, format);
    vsnprintf(s->why + used, sizeof s->why - (size_t)used, format, args);
    va_end(args);
    return LS_BAD_INPUT;
}

bool ls_scan_read(struct ls_shard_scan *s, uint64_t offset, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(s->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            ls_scan_refuse(s, offset + done, "%s", n < 0 ? strerror(errno) : "the file ends within a sample");
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

static bool add_text(struct ls_shard_scan *s, const char *text, uint64_t *at)
{
    size_t n = strlen(text) + 1;
    if (s->used + n > s->text_room) {
        size_t room = 2 * (s->used + n) + 4096;
        char *larger = ls_realloc(s->text, s->used, room, 1);
        if (!larger)
            return false;
        s->text = larger;
        s->text_room = room;
    }
    memcpy(s->text + s->used, text, n);
    *at = s->used;
    s->used += n;
    return true;
}

enum ls_status ls_scan_add(struct ls_shard_scan *s, const struct ls_record_entry *e, const char *name,
                           const char *label)
{
    if (s->count == s->room) {
        int64_t room = 2 * s->room + GROWTH;
        struct ls_record_entry *entry = ls_realloc(s->entry, (size_t)s->count, (size_t)room, sizeof *entry);
        if (!entry)
            return LS_FAILED;
        s->entry = entry;
        uint64_t *labels = ls_realloc(s->label, (size_t)s->count, (size_t)room, sizeof *labels);
        if (!labels)
            return LS_FAILED;
        s->label = labels;
        s->room = room;
    }
    s->entry[s->count] = *e;
    if (!add_text(s, name, &s->entry[s->count].name) || !add_text(s, label, &s->label[s->count]))
        return LS_FAILED;
    s->count++;
    return LS_OK;
}

void ls_scan_release(struct ls_shard_scan *s)
{
    ls_free(s->entry);
    ls_free(s->label);
    ls_free(s->text);
}

/* Scans all shards, several at once. The first shard that fails is reported. */
static enum ls_status scan_all(struct ls_records *r, const struct ls_record_format *format, struct ls_shard_scan *scans)
{
    atomic_int done = 0;
    double began = ls_now(), said = began;
    enum ls_status *of = ls_alloc((size_t)r->n_shards, sizeof *of), st = LS_OK;
    if (!of)
        return LS_FAILED;
#pragma omp parallel for schedule(dynamic, 1) num_threads(SCANNERS)
    for (int i = 0; i < r->n_shards; i++) {
        scans[i] = (struct ls_shard_scan){.path = r->shards[i].path, .fd = r->shards[i].fd, .size = r->shards[i].size};
        of[i] = ls_interrupted()     ? LS_INTERRUPTED
                : scans[i].size == 0 ? ls_scan_refuse(&scans[i], 0, "the file is empty")
                                     : format->scan(&scans[i]);
        int so_far = atomic_fetch_add(&done, 1) + 1;
        if (omp_get_thread_num() == 0 && ls_now() - said > SOON) {
            ls_print("Looking for samples: %d of %d %s files, %.0f s.", so_far, r->n_shards, format->what,
                     ls_now() - began);
            said = ls_now();
        }
    }
    for (int i = 0; i < r->n_shards && st == LS_OK; i++) {
        st = of[i];
        if (st == LS_OK && scans[i].is_unended)
            ls_warn("%s: the end mark of a %s file is missing; is the file complete?", r->shards[i].path, format->what);
        if (st == LS_BAD_INPUT)
            ls_fail(st, "%s: %s", r->shards[i].path, scans[i].why);
    }
    ls_free(of);
    return st;
}

/* --- joining the shards' samples -------------------------------------------------------------------------------------- */

static enum ls_status take_room(struct ls_records *r, const struct ls_shard_scan *scans, const char ***labels)
{
    size_t text = 0;
    int64_t count = 0, without = 0;
    for (int i = 0; i < r->n_shards; i++) {
        count += scans[i].count;
        text += scans[i].used;
        without += scans[i].without_image;
    }
    if (count == 0)
        return ls_fail(LS_BAD_INPUT, "%s: no sample with an image in %s", r->shards[0].path,
                       r->n_shards > 1 ? "it and the other shards" : "it");
    if (without > 0)
        ls_warn("%s: %" PRId64 " samples have no image of a kind that is read (%s) and are left out", r->shards[0].path,
                without, ls_image_kinds());
    r->base.info.count = count;
    r->entry = ls_alloc((size_t)count, sizeof *r->entry);
    r->names = ls_alloc(text, 1);
    *labels = ls_alloc((size_t)count, sizeof **labels);
    return r->entry && r->names && *labels ? LS_OK : LS_FAILED;
}

static void join(struct ls_records *r, const struct ls_shard_scan *scans, const char **labels)
{
    int64_t n = 0;
    for (int i = 0; i < r->n_shards; i++) {
        const struct ls_shard_scan *s = &scans[i];
        memcpy(r->names + r->names_size, s->text, s->used);
        for (int64_t k = 0; k < s->count; k++, n++) {
            r->entry[n] = s->entry[k];
            r->entry[n].shard = (uint32_t)i;
            r->entry[n].name += r->names_size;
            labels[n] = r->names + r->names_size + s->label[k];
        }
        r->names_size += s->used;
    }
}

static enum ls_status find_classes(struct ls_records *r, const char *const *labels)
{
    int64_t n = r->base.info.count;
    struct ls_labels found;
    int32_t *of = ls_alloc((size_t)n, sizeof *of);
    enum ls_status st = of ? ls_labels_find(labels, n, &r->arena, of, &found) : LS_FAILED;
    for (int64_t i = 0; st == LS_OK && i < n; i++)
        r->entry[i].label = of[i];
    ls_free(of);
    LS_TRY(st);
    r->class_names = found.names;
    r->base.info.classes = found.classes;
    return LS_OK;
}

static enum ls_status scan(struct ls_records *r, const struct ls_record_format *format)
{
    const char **labels = NULL;
    struct ls_shard_scan *scans = ls_alloc((size_t)r->n_shards, sizeof *scans);
    enum ls_status st = scans ? scan_all(r, format, scans) : LS_FAILED;
    if (st == LS_OK)
        st = take_room(r, scans, &labels);
    if (st == LS_OK) {
        join(r, scans, labels);
        st = find_classes(r, labels);
    }
    for (int i = 0; scans && i < r->n_shards; i++)
        ls_scan_release(&scans[i]);
    ls_free(scans);
    ls_free(labels);
    return st;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

bool ls_records_recognise(const char *spec, const struct ls_record_format *format)
{
    char **paths;
    int count;
    bool whole, muted = ls_log_mute(true);
    enum ls_status st = ls_shards_find(spec, false, format->is_shard, &paths, &count, &whole);
    ls_log_mute(muted);
    if (st != LS_OK)
        return false;
    ls_shards_free(paths, count);
    return count > 0;
}

static enum ls_status open_shard(struct ls_shard *s, char *path)
{
    char why[LS_FILE_WHY];
    struct stat about;
    size_t size;
    *s = (struct ls_shard){.path = path, .fd = ls_file_open(path, &size, why)};
    if (s->fd < 0)
        return ls_fail(LS_BAD_INPUT, "%s: %s", path, why);
    if (fstat(s->fd, &about) != 0)
        return ls_fail(LS_BAD_INPUT, "%s: %s", path, strerror(errno));
    s->size = size;
    s->changed = (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
    return LS_OK;
}

/* Each shard stays open. The usual limit of 1024 open files is a soft one. */
static void allow_open_files(int shards)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)shards + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* The paths become those of the shards. */
static enum ls_status open_shards(struct ls_records *r, char **paths, int count)
{
    enum ls_status st = LS_OK;
    r->shards = ls_alloc((size_t)count, sizeof *r->shards);
    if (!r->shards) {
        ls_shards_free(paths, count);
        return LS_FAILED;
    }
    allow_open_files(count);
    for (r->n_shards = 0; r->n_shards < count; r->n_shards++) {
        struct ls_shard *s = &r->shards[r->n_shards];
        if (st == LS_OK)
            st = open_shard(s, paths[r->n_shards]);
        else
            *s = (struct ls_shard){.path = paths[r->n_shards], .fd = -1};
    }
    ls_free(paths);
    return st;
}

static enum ls_status fill(struct ls_records *r, const char *spec, const char *part,
                           const struct ls_record_format *format)
{
    char **paths;
    int count;
    bool whole;
    LS_TRY(ls_shards_find(spec, strcmp(part, "test") == 0, format->is_shard, &paths, &count, &whole));
    if (count == 0) {
        ls_shards_free(paths, count);
        return ls_fail(LS_BAD_INPUT, "%s: no %s files in it", spec, format->what);
    }
    LS_TRY(open_shards(r, paths, count));
    if (!ls_record_index_load(r, spec, whole ? "all" : part)) {
        LS_TRY(scan(r, format));
        ls_record_index_save(r, spec, whole ? "all" : part);
    }
    LS_TRY(ls_records_name_classes(r, format->counts_classes));
    r->verify = format->verify;
    r->behind = format->behind;
    struct ls_dataset_info *info = &r->base.info;
    ls_dataset_photographs(info);
    info->class_names = r->class_names;
    info->class_ids = r->class_ids;
    info->whole = whole;
    info->folder = ls_arena_strdup(&r->arena, spec);
    return info->folder ? LS_OK : LS_FAILED;
}

enum ls_status ls_records_open(const char *spec, const char *part, const struct ls_record_format *format,
                               struct ls_dataset **set)
{
    struct ls_records *r = ls_alloc(1, sizeof *r);
    enum ls_status st = r ? fill(r, spec, part, format) : LS_FAILED;
    if (st == LS_OK)
        *set = &r->base;
    else if (r)
        ls_records_close(&r->base);
    return st;
}

void ls_records_close(struct ls_dataset *set)
{
    struct ls_records *r = (struct ls_records *)set;
    for (int i = 0; i < r->n_shards; i++) {
        if (r->shards[i].fd >= 0)
            close(r->shards[i].fd);
        ls_free(r->shards[i].path);
    }
    ls_free(r->shards);
    ls_free(r->entry);
    ls_free(r->names);
    ls_free(r->class_names);
    ls_free(r->class_ids);
    ls_arena_release(&r->arena);
    ls_free(r);
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

/* Planes become interleaved bytes; blue, green and red become red, green and blue. */
static enum ls_status take_planes(const struct ls_record_entry *e, struct ls_image *image)
{
    int channels = e->channels;
    size_t area = (size_t)e->height * e->width;
    const uint8_t *planes = image->side + e->image;
    LS_TRY(ls_image_reserve(image, channels, e->height, e->width));
    for (size_t i = 0; i < area; i++)
        for (int c = 0; c < channels; c++)
            image->pixels[i * (size_t)channels + (size_t)c] = planes[(size_t)(channels - 1 - c) * area + i];
    return ls_image_to_channels(image, 3);
}

/* Reads a record into image->side. */
static enum ls_status fetch(const struct ls_records *r, const struct ls_record_entry *e, struct ls_image *image)
{
    LS_TRY(ls_image_fetch(r->shards[e->shard].fd, e->offset, e->bytes + r->behind, image));
    if (r->verify && !r->verify(image->side, e->bytes))
        return ls_image_refuse(image, "its checksum is wrong: the file is damaged");
    return LS_OK;
}

enum ls_status ls_records_encoded(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                                  size_t *size)
{
    const struct ls_records *r = (const struct ls_records *)set;
    const struct ls_record_entry *e = &r->entry[i];
    if (e->channels > 0)
        return LS_OK;
    LS_TRY(fetch(r, e, image));
    *bytes = image->side + e->image;
    *size = e->image_bytes;
    return LS_OK;
}

enum ls_status ls_records_read(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                               int32_t *label)
{
    const struct ls_records *r = (const struct ls_records *)set;
    const struct ls_record_entry *e = &r->entry[i];
    LS_TRY(fetch(r, e, image));
    *label = e->label;
    if (e->channels > 0)
        return take_planes(e, image);
    return ls_image_decode(image->side + e->image, e->image_bytes, view, 3, image);
}

int32_t ls_records_label(const struct ls_dataset *set, int64_t i)
{
    return ((const struct ls_records *)set)->entry[i].label;
}

void ls_records_where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    const struct ls_records *r = (const struct ls_records *)set;
    const struct ls_record_entry *e = &r->entry[i];
    snprintf(text, room, "%s: %s at byte %" PRIu64, r->shards[e->shard].path, r->names + e->name, e->offset);
}

void ls_records_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id)
{
    const struct ls_records *r = (const struct ls_records *)set;
    id->folder = ls_base_name(r->shards[r->entry[i].shard].path);
    id->name = r->names + r->entry[i].name;
    id->size = r->entry[i].image_bytes;
}
