/* The index of shards, in the byte order of this machine:
 *
 *     head, shards (size, time, length of the name, name), entries, names of samples, class names, XXH64 of all that
 *
 * It lies beside the data as .lockstep-index-PART, or, where that folder cannot be written, in the cache. */
#include "base/text/text.h"
#include "base/files/cache_dir.h"
#include "base/files/checksum.h"
#include "base/files/file.h"
#include "base/log.h"
#include "data/records/records.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = "LSINDEX2";
#define LARGEST ((size_t)64 << 30)

struct head {
    char magic[8];
    uint64_t shards, samples, names, classes, class_bytes;
};

/* place 0: beside the data; 1: in the cache. NULL: there is no such place. */
static char *index_path(const char *where, const char *part, int place)
{
    const char *slash = strrchr(where, '/');
    bool folder = ls_file_is_dir(where);
    if (place == 0)
        return folder ? ls_format("%s/.lockstep-index-%s", where, part)
                      : ls_format("%.*s.lockstep-index-%s", (int)(slash ? slash + 1 - where : 0), where,
                                  ls_base_name(where));
    char *absolute = ls_path_absolute(where);
    char name[64];
    if (!absolute)
        return NULL;
    snprintf(name, sizeof name, "index/%016" PRIx64 "-%s", ls_checksum_of(absolute, strlen(absolute)), part);
    ls_free(absolute);
    return ls_cache_path(name);
}

/* --- writing ---------------------------------------------------------------------------------------------------------- */

static void put_shards(FILE *out, const struct ls_records *r)
{
    for (int i = 0; i < r->n_shards; i++) {
        const char *name = ls_base_name(r->shards[i].path);
        uint64_t fields[3] = {r->shards[i].size, (uint64_t)r->shards[i].changed, strlen(name)};
        fwrite(fields, sizeof fields, 1, out);
        fwrite(name, 1, strlen(name), out);
    }
}

static bool compose(const struct ls_records *r, char **text, size_t *size)
{
    struct head h = {.shards = (uint64_t)r->n_shards,
                     .samples = (uint64_t)r->base.info.count,
                     .names = r->names_size,
                     .classes = (uint64_t)r->base.info.classes};
    memcpy(h.magic, magic, sizeof magic);
    for (int64_t c = 0; c < r->base.info.classes; c++)
        h.class_bytes += strlen(r->class_names[c]) + 1;
    FILE *out = open_memstream(text, size);
    if (!out)
        return false;
    fwrite(&h, sizeof h, 1, out);
    put_shards(out, r);
    fwrite(r->entry, sizeof *r->entry, (size_t)r->base.info.count, out);
    fwrite(r->names, 1, r->names_size, out);
    for (int64_t c = 0; c < r->base.info.classes; c++)
        fwrite(r->class_names[c], 1, strlen(r->class_names[c]) + 1, out);
    fflush(out);
    uint64_t sum = ls_checksum_of(*text, *size);
    fwrite(&sum, sizeof sum, 1, out);
    return fclose(out) == 0;
}

void ls_record_index_save(const struct ls_records *r, const char *where, const char *part)
{
    char *text = NULL;
    size_t size = 0;
    bool saved = false, muted = ls_log_mute(true);
    bool made = compose(r, &text, &size);
    for (int place = 0; made && !saved && place < 2; place++) {
        char *path = index_path(where, part, place), *slash = path ? strrchr(path, '/') : NULL;
        if (place == 1 && slash) {
            *slash = 0;
            ls_dir_make(path);
            *slash = '/';
        }
        saved = path && ls_file_write(path, text, size) == LS_OK;
        ls_free(path);
    }
    ls_log_mute(muted);
    free(text);
    if (!saved)
        ls_note("%s: its index cannot be kept; the files are scanned again at the next start", where);
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

/* Takes n bytes; NULL: there are fewer. */
static const char *take(const char **at, const char *end, uint64_t n)
{
    const char *here = *at;
    if ((uint64_t)(end - here) < n)
        return NULL;
    *at += n;
    return here;
}

static bool same_shards(const struct ls_records *r, const struct head *h, const char **at, const char *end)
{
    if (h->shards != (uint64_t)r->n_shards)
        return false;
    for (int i = 0; i < r->n_shards; i++) {
        const char *name = ls_base_name(r->shards[i].path), *fields = take(at, end, 3 * sizeof(uint64_t)), *its;
        uint64_t of[3];
        if (!fields)
            return false;
        memcpy(of, fields, sizeof of);
        its = take(at, end, of[2]);
        if (!its || of[0] != r->shards[i].size || of[1] != (uint64_t)r->shards[i].changed || of[2] != strlen(name) ||
            memcmp(its, name, of[2]) != 0)
            return false;
    }
    return true;
}

static bool valid_entry(const struct ls_records *r, const struct head *h, const struct ls_record_entry *e)
{
    return e->shard < (uint32_t)r->n_shards && e->offset <= r->shards[e->shard].size &&
           e->bytes <= r->shards[e->shard].size - e->offset && e->image <= e->bytes &&
           e->image_bytes <= e->bytes - e->image &&
           (e->channels == 0 || (size_t)e->channels * e->height * e->width == e->image_bytes) && e->name < h->names &&
           e->label >= 0 && (uint64_t)e->label < h->classes;
}

static bool take_classes(struct ls_records *r, const struct head *h, const char *text)
{
    const char *at = text, *end = text + h->class_bytes;
    r->class_names = ls_alloc(h->classes, sizeof *r->class_names);
    for (uint64_t c = 0; r->class_names && c < h->classes; c++) {
        const char *zero = memchr(at, 0, (size_t)(end - at));
        if (!zero || !(r->class_names[c] = ls_arena_strdup(&r->arena, at)))
            return false;
        at = zero + 1;
    }
    return r->class_names;
}

static bool parse(struct ls_records *r, const char *text, size_t size)
{
    struct head h;
    uint64_t sum;
    const char *at = text, *end = text + size - sizeof sum;
    if (size < sizeof h + sizeof sum)
        return false;
    memcpy(&sum, end, sizeof sum);
    memcpy(&h, at, sizeof h);
    at += sizeof h;
    if (memcmp(h.magic, magic, sizeof magic) != 0 || sum != ls_checksum_of(text, size - sizeof sum) || h.samples == 0 ||
        h.samples > size || h.classes == 0 || h.classes > size || h.names == 0)
        return false;
    if (!same_shards(r, &h, &at, end))
        return false;
    const char *entries = take(&at, end, h.samples * sizeof *r->entry), *names = take(&at, end, h.names);
    const char *classes = take(&at, end, h.class_bytes);
    if (!entries || !names || !classes || at != end || names[h.names - 1] != 0)
        return false;
    r->entry = ls_alloc(h.samples, sizeof *r->entry);
    r->names = ls_alloc(h.names, 1);
    if (!r->entry || !r->names || !take_classes(r, &h, classes))
        return false;
    memcpy(r->entry, entries, h.samples * sizeof *r->entry);
    memcpy(r->names, names, h.names);
    r->names_size = h.names;
    for (uint64_t i = 0; i < h.samples; i++)
        if (!valid_entry(r, &h, &r->entry[i]))
            return false;
    r->base.info.count = (int64_t)h.samples;
    r->base.info.classes = (int64_t)h.classes;
    return true;
}

static void forget(struct ls_records *r)
{
    ls_free(r->entry);
    ls_free(r->names);
    ls_free(r->class_names);
    r->entry = NULL;
    r->names = NULL;
    r->class_names = NULL;
    r->names_size = 0;
    r->base.info.count = r->base.info.classes = 0;
}

bool ls_record_index_load(struct ls_records *r, const char *where, const char *part)
{
    bool loaded = false, muted = ls_log_mute(true);
    for (int place = 0; place < 2 && !loaded; place++) {
        char *path = index_path(where, part, place), *text = NULL;
        size_t size;
        if (path && ls_file_exists(path) && ls_file_read(path, LARGEST, &text, &size) == LS_OK) {
            loaded = parse(r, text, size);
            if (!loaded)
                forget(r);
        }
        ls_free(text);
        ls_free(path);
    }
    ls_log_mute(muted);
    return loaded;
}
