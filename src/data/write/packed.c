/* Writes a packed file (data/formats/packed.h): PART.packed, or all.packed. */
#include "base/files/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/formats/packed.h"
#include "data/write/writers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct packed {
    struct ls_writer base;
    const struct ls_dataset_info *info;
    struct ls_out out;
    struct ls_packed_entry *entry; /* owned; info->count */
    int64_t count;
    FILE *names; /* a stream to memory */
    char *name_text;
    size_t name_bytes;
};

static enum ls_status open_packed(const struct ls_write_plan *plan, struct ls_writer **w)
{
    struct packed *p = ls_alloc(1, sizeof *p);
    struct ls_packed_head none = {0};
    if (!p)
        return LS_FAILED;
    *w = &p->base;
    p->info = plan->info;
    p->names = open_memstream(&p->name_text, &p->name_bytes);
    p->entry = ls_alloc((size_t)plan->info->count, sizeof *p->entry);
    if (!p->names || !p->entry)
        return LS_FAILED;
    LS_TRY(ls_out_open(&p->out, ls_format("%s/%s.packed", plan->folder, *plan->part ? plan->part : "all")));
    return ls_out_put(&p->out, &none, sizeof none);
}

static enum ls_status put(struct ls_writer *w, const struct ls_write_sample *s)
{
    struct packed *p = (struct packed *)w;
    if (s->size > UINT32_MAX || s->height > UINT16_MAX || s->width > UINT16_MAX)
        return ls_fail(LS_BAD_INPUT, "%s: sample %" PRId64 " is too large for a packed file: %d x %d pixels",
                       p->out.path, s->number, s->width, s->height);
    LS_TRY(ls_out_align(&p->out, LS_PACKED_ALIGN));
    p->entry[p->count++] = (struct ls_packed_entry){.offset = p->out.bytes,
                                                    .name = (uint64_t)ftello(p->names),
                                                    .bytes = (uint32_t)s->size,
                                                    .crc = ls_crc32c(s->bytes, s->size),
                                                    .label = s->label,
                                                    .height = (uint16_t)s->height,
                                                    .width = (uint16_t)s->width,
                                                    .channels = (uint8_t)(s->extension ? 0 : s->channels)};
    fprintf(p->names, "%s%c%s%c", s->folder ? s->folder : "", 0, s->name ? s->name : "", 0);
    return ls_out_put(&p->out, s->bytes, s->size);
}

static size_t put_texts(FILE *to, const char *const *texts, int64_t count)
{
    size_t bytes = 0;
    for (int64_t c = 0; texts && c < count; c++) {
        fwrite(texts[c], 1, strlen(texts[c]) + 1, to);
        bytes += strlen(texts[c]) + 1;
    }
    return bytes;
}

static struct ls_packed_head describe(const struct packed *p)
{
    const struct ls_dataset_info *info = p->info;
    struct ls_packed_head h = {.version = LS_PACKED_VERSION,
                               .samples = (uint64_t)p->count,
                               .classes = (uint64_t)info->classes,
                               .index = p->out.bytes,
                               .has_names = info->class_names != NULL,
                               .has_ids = info->class_names && info->class_ids,
                               .channels = (int32_t)info->channels,
                               .height = (int32_t)info->height,
                               .width = (int32_t)info->width};
    memcpy(h.magic, LS_PACKED_MAGIC, sizeof h.magic);
    memcpy(h.mean, info->mean, sizeof h.mean);
    memcpy(h.deviation, info->deviation, sizeof h.deviation);
    return h;
}

static enum ls_status put_index(struct packed *p, const char *index, size_t bytes, struct ls_packed_head *h)
{
    ls_packed_seal(h, index, bytes);
    LS_TRY(ls_out_put(&p->out, index, bytes));
    if (fseeko(p->out.file, 0, SEEK_SET) != 0 || fwrite(h, sizeof *h, 1, p->out.file) != 1)
        return ls_fail(LS_FAILED, "%s: its head cannot be written: %s", p->out.path, strerror(errno));
    return ls_out_close(&p->out);
}

static enum ls_status finish(struct ls_writer *w)
{
    struct packed *p = (struct packed *)w;
    char *index = NULL;
    size_t bytes = 0;
    LS_TRY(ls_out_align(&p->out, LS_PACKED_ALIGN));
    struct ls_packed_head h = describe(p);
    FILE *to = open_memstream(&index, &bytes);
    if (!to)
        return ls_fail(LS_FAILED, "out of memory");
    fputc(0, p->names);
    bool good = fflush(p->names) == 0;
    h.name_bytes = p->name_bytes;
    fwrite(p->entry, sizeof *p->entry, (size_t)p->count, to);
    fwrite(p->name_text, 1, p->name_bytes, to);
    h.class_bytes = put_texts(to, p->info->class_names, p->info->classes);
    if (h.has_ids)
        h.class_bytes += put_texts(to, p->info->class_ids, p->info->classes);
    good = !ferror(to) && good && !ferror(p->names);
    good = fclose(to) == 0 && good;
    enum ls_status st = good ? put_index(p, index, bytes, &h) : ls_fail(LS_FAILED, "out of memory");
    free(index);
    return st;
}

static void close_packed(struct ls_writer *w)
{
    struct packed *p = (struct packed *)w;
    if (p->names)
        fclose(p->names);
    free(p->name_text);
    ls_free(p->entry);
    ls_out_release(&p->out);
    ls_free(p);
}

const struct ls_writer_ops ls_writer_packed = {
    .name = "packed",
    .takes_pixels = true,
    .open = open_packed,
    .put = put,
    .finish = finish,
    .close = close_packed,
};
