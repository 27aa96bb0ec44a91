/* WebDataset: tar files of samples. Consecutive members with one key, the path up to the first dot of the file name, are a
 * sample: KEY.jpg, or another kind of image, is its image, KEY.cls its label; without KEY.cls the folder of the image is its
 * label. Members named __LIKE_THIS__ are skipped.
 *
 * Headers are read here and not by a library, because samples are read at random and need the offset of their data. */
#include "data/formats/formats.h"
#include "data/formats/tar.h"
#include "data/records/tar_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BLOCK = LS_TAR_BLOCK, PATH_ROOM = LS_TAR_PATH, LABEL_ROOM = 256, HEADER_MOST = 1 << 20 };

struct member {
    char path[PATH_ROOM];
    uint64_t header, data, size;
    char type;
};

/* --- headers ---------------------------------------------------------------------------------------------------------- */

/* Takes path and size out of the records "LENGTH KEY=VALUE\n" of a pax header. False: not such records. */
static bool take_pax(const char *text, size_t size, char path[PATH_ROOM], uint64_t *bytes, bool *has_path,
                     bool *has_size)
{
    for (const char *end = text + size; text < end;) {
        char *after;
        unsigned long long length = strtoull(text, &after, 10);
        if (*after != ' ' || length < 5 || length > (unsigned long long)(end - text) || text[length - 1] != '\n' ||
            after + 1 > text + length)
            return false;
        const char *key = after + 1, *equals = memchr(key, '=', (size_t)(text + length - key));
        if (!equals)
            return false;
        int n = (int)(text + length - 1 - equals - 1);
        if (equals - key == 4 && memcmp(key, "path", 4) == 0) {
            *has_path = n < PATH_ROOM && n > 0;
            snprintf(path, PATH_ROOM, "%.*s", n, equals + 1);
        }
        if (equals - key == 4 && memcmp(key, "size", 4) == 0) {
            *has_size = true;
            *bytes = strtoull(equals + 1, NULL, 10);
        }
        text += length;
    }
    return true;
}

/* Reads the data of a member that describes the next one. */
static char *read_text(struct ls_shard_scan *s, const struct member *m)
{
    char *text = m->size <= HEADER_MOST ? ls_alloc(m->size + 1, 1) : NULL;
    if (m->size > HEADER_MOST)
        ls_scan_refuse(s, m->header, "a header of %" PRIu64 " bytes", m->size);
    if (text && ls_scan_read(s, m->data, text, m->size))
        return text;
    ls_free(text);
    return NULL;
}

static enum ls_status read_header(struct ls_shard_scan *s, uint64_t *at, struct member *m, bool *end)
{
    uint8_t block[BLOCK];
    *end = *at == s->size;
    s->is_unended = *end;
    if (*end)
        return LS_OK;
    if (!ls_scan_read(s, *at, block, BLOCK))
        return LS_BAD_INPUT;
    struct ls_tar_header h;
    enum ls_tar_kind kind = ls_tar_header(block, &h);
    *end = kind == LS_TAR_END;
    if (*end)
        return LS_OK;
    if (kind == LS_TAR_FOREIGN)
        return ls_scan_refuse(s, *at, "no header of a tar file: its checksum is wrong");
    if (kind == LS_TAR_NO_SIZE)
        return ls_scan_refuse(s, *at, "the size of %.100s is no number", h.path);
    *m = (struct member){.header = *at, .data = *at + BLOCK, .size = h.size, .type = h.type};
    memcpy(m->path, h.path, sizeof m->path);
    return LS_OK;
}

static enum ls_status skip_data(struct ls_shard_scan *s, const struct member *m, uint64_t *at)
{
    if (m->size > s->size - m->data)
        return ls_scan_refuse(s, m->header, "%.100s has %" PRIu64 " bytes, but the file ends after %" PRIu64 " of them",
                              m->path, m->size, s->size - m->data);
    uint64_t next = m->data + (m->size + BLOCK - 1) / BLOCK * BLOCK;
    *at = next < s->size ? next : s->size;
    return LS_OK;
}

/* Reads the next member, after the headers that describe it. */
static enum ls_status next_member(struct ls_shard_scan *s, uint64_t *at, struct member *m, bool *end)
{
    char path[PATH_ROOM];
    bool has_path = false, has_size = false, good = true;
    uint64_t size = 0;
    for (;;) {
        LS_TRY(read_header(s, at, m, end));
        if (*end)
            return LS_OK;
        bool pax = m->type == 'x', is_long = m->type == 'L';
        if (!pax && !is_long && m->type != 'g' && m->type != 'K')
            break;
        LS_TRY(skip_data(s, m, at));
        char *text = pax || is_long ? read_text(s, m) : NULL;
        if ((pax || is_long) && !text)
            return s->why[0] ? LS_BAD_INPUT : LS_FAILED;
        if (pax)
            good = take_pax(text, m->size, path, &size, &has_path, &has_size);
        if (is_long) {
            has_path = m->size < PATH_ROOM;
            snprintf(path, sizeof path, "%s", text);
        }
        ls_free(text);
        if (!good)
            return ls_scan_refuse(s, m->header, "a header (pax) that cannot be read");
    }
    if (has_path)
        memcpy(m->path, path, sizeof path);
    if (has_size)
        m->size = size;
    return skip_data(s, m, at);
}

/* --- samples ------------------------------------------------------------------------------------------------------------ */

struct sample {
    char key[PATH_ROOM], label[LABEL_ROOM];
    bool has_image, has_label, any;
    uint64_t first; /* offset */
    struct ls_record_entry entry;
};

static enum ls_status close_sample(struct ls_shard_scan *s, struct sample *p)
{
    char folder[LABEL_ROOM] = "";
    if (!p->any)
        return LS_OK;
    p->any = false;
    if (!p->has_image) {
        s->without_image++;
        return LS_OK;
    }
    char *slash = strrchr(p->key, '/');
    if (!p->has_label && slash) {
        *slash = 0;
        const char *above = strrchr(p->key, '/');
        snprintf(folder, sizeof folder, "%.*s", LABEL_ROOM - 1, above ? above + 1 : p->key);
        *slash = '/';
    }
    if (!p->has_label && !*folder)
        return ls_scan_refuse(s, p->first,
                              "%.100s has no label: expected %.100s.cls beside it, or a folder of its class", p->key,
                              p->key);
    return ls_scan_add(s, &p->entry, p->key, p->has_label ? p->label : folder);
}

static enum ls_status take_label(struct ls_shard_scan *s, const struct member *m, struct sample *p)
{
    if (m->size == 0 || m->size >= LABEL_ROOM)
        return ls_scan_refuse(s, m->header, "%.100s: expected a label of 1 to %d bytes, found %" PRIu64, m->path,
                              LABEL_ROOM - 1, m->size);
    memset(p->label, 0, sizeof p->label);
    if (!ls_scan_read(s, m->data, p->label, m->size))
        return LS_BAD_INPUT;
    char *text = p->label + strspn(p->label, " \t\r\n");
    memmove(p->label, text, strlen(text) + 1);
    for (size_t n = strlen(p->label); n > 0 && strchr(" \t\r\n", p->label[n - 1]); n--)
        p->label[n - 1] = 0;
    if (!*p->label)
        return ls_scan_refuse(s, m->header, "%.100s: the label is empty", m->path);
    return LS_OK;
}

static enum ls_status add_member(struct ls_shard_scan *s, const struct member *m, struct sample *p)
{
    const char *slash = strrchr(m->path, '/'), *base = slash ? slash + 1 : m->path;
    const char *dot = strchr(base, '.');
    size_t key = dot ? (size_t)(dot - m->path) : strlen(m->path);
    if (*base == 0 || !dot || dot == base || strncmp(base, "__", 2) == 0)
        return LS_OK;
    if (!p->any || strlen(p->key) != key || memcmp(p->key, m->path, key) != 0) {
        LS_TRY(close_sample(s, p));
        *p = (struct sample){.any = true, .first = m->header};
        memcpy(p->key, m->path, key);
    }
    bool image = !strchr(dot + 1, '.') && ls_image_by_name(m->path) == LS_IMAGE_READ,
         label = strcasecmp(dot + 1, "cls") == 0;
    if ((image && p->has_image) || (label && p->has_label))
        return ls_scan_refuse(s, m->header, "%.100s: the sample has a second %s", m->path, image ? "image" : "label");
    if (label) {
        p->has_label = true;
        return take_label(s, m, p);
    }
    if (!image)
        return LS_OK;
    if (m->size > UINT32_MAX)
        return ls_scan_refuse(s, m->header, "%.100s: %" PRIu64 " bytes are too many for an image", m->path, m->size);
    p->has_image = true;
    p->entry =
        (struct ls_record_entry){.offset = m->data, .bytes = (uint32_t)m->size, .image_bytes = (uint32_t)m->size};
    return LS_OK;
}

enum ls_status ls_tar_scan(struct ls_shard_scan *s)
{
    struct sample sample = {0};
    struct member m;
    bool end = false;
    for (uint64_t at = 0;;) {
        LS_TRY(next_member(s, &at, &m, &end));
        if (end)
            return close_sample(s, &sample);
        if (m.type == '0' || m.type == 0 || m.type == '7')
            LS_TRY(add_member(s, &m, &sample));
    }
}

/* --- the format ----------------------------------------------------------------------------------------------------------- */

static bool is_shard(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcasecmp(name + n - 4, ".tar") == 0;
}

static const struct ls_record_format tar = {
    .what = "tar", .is_shard = is_shard, .scan = ls_tar_scan, .counts_classes = true};

static bool recognise(const char *spec)
{
    return ls_records_recognise(spec, &tar);
}

static enum ls_status open_tar(const char *spec, const char *part, struct ls_dataset **set)
{
    return ls_records_open(spec, part, &tar, set);
}

const struct ls_dataset_ops ls_format_tar = {.format = "tar", .recognise = recognise, .open = open_tar, LS_RECORDS_OPS};
