/* Any bytes as a packed file: refused, or entries and names that lie within the file. The checksums are made right first, so
 * that the checks behind them are reached. */
#include "base/files/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/formats/packed.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct ls_packed_view *v, const char *end)
{
    for (uint64_t i = 0; i < v->head.samples; i++) {
        const struct ls_packed_entry *e = &v->entry[i];
        const char *folder = v->names + e->name, *name = folder + strlen(folder) + 1;
        if (e->offset + e->bytes > v->head.index || name + strlen(name) >= v->class_names)
            __builtin_trap();
    }
    const char *at = v->class_names;
    for (uint64_t c = 0; c < v->head.classes * (v->head.has_names + v->head.has_ids); c++)
        at += strlen(at) + 1;
    if (at > end)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_packed_view v;
    struct ls_packed_head h;
    uint8_t *bytes = ls_alloc(size + 1, 1);
    ls_log_mute(1);
    memcpy(bytes, data, size);
    if (size >= sizeof h) {
        memcpy(&h, bytes, sizeof h);
        if (h.index <= size)
            ls_packed_seal(&h, bytes + h.index, size - h.index);
        memcpy(bytes, &h, sizeof h);
    }
    if (ls_packed_parse(bytes, size, "input.packed", &v) == LS_OK)
        check(&v, (const char *)bytes + size);
    ls_free(bytes);
    return 0;
}
