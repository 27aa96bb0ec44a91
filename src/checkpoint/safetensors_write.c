#include "checkpoint/safetensors.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/files/checksum.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A file being written, with the checksum so far. */
struct output {
    struct ls_file_writer file;
    struct ls_checksum checksum;
};

static enum ls_status put(struct output *out, const void *data, size_t size)
{
    ls_checksum_add(&out->checksum, data, size);
    return ls_file_writer_put(&out->file, data, size);
}

struct place {
    const struct ls_st_tensor *tensor;
    uint64_t bytes, begin;
};

static int by_size_and_name(const void *a, const void *b)
{
    const struct ls_st_tensor *x = ((const struct place *)a)->tensor, *y = ((const struct place *)b)->tensor;
    size_t x_size = ls_st_type_size(x->type), y_size = ls_st_type_size(y->type);
    if (x_size != y_size)
        return x_size > y_size ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Places the data of every tensor. *largest is the buffer size that `fill` needs. */
static enum ls_status place_all(const struct ls_st_tensor *tensors, int n, struct place *places, uint64_t *largest)
{
    for (int i = 0; i < n; i++) {
        uint64_t bytes = ls_st_type_size(tensors[i].type);
        for (int d = 0; d < tensors[i].rank; d++)
            if (__builtin_mul_overflow(bytes, (uint64_t)tensors[i].dim[d], &bytes))
                return ls_fail(LS_FAILED, "tensor %s is too large for a file", tensors[i].name);
        places[i] = (struct place){.tensor = &tensors[i], .bytes = bytes};
        *largest = bytes > *largest ? bytes : *largest;
    }
    qsort(places, (size_t)n, sizeof *places, by_size_and_name);
    for (int i = 1; i < n; i++)
        places[i].begin = places[i - 1].begin + places[i - 1].bytes;
    return LS_OK;
}

static json_t *entry_json(const struct place *p)
{
    json_t *shape = json_array();
    for (int d = 0; d < p->tensor->rank; d++)
        json_array_append_new(shape, json_integer(p->tensor->dim[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", ls_st_type_name(p->tensor->type), "shape", shape, "data_offsets",
                     (json_int_t)p->begin, (json_int_t)(p->begin + p->bytes));
}

/* Returns the text of the header; free it with free(). NULL if memory is exhausted or a name is not UTF-8. */
static char *header_text(const struct ls_st_pair *metadata, int n_metadata, const struct place *places, int n)
{
    json_t *header = json_object(), *strings = json_object();
    bool good = header && strings;
    for (int i = 0; good && i < n_metadata; i++)
        good = json_object_set_new(strings, metadata[i].key, json_string(metadata[i].value)) == 0;
    if (good && n_metadata > 0)
        good = json_object_set(header, "__metadata__", strings) == 0;
    for (int i = 0; good && i < n; i++)
        good = json_object_set_new(header, places[i].tensor->name, entry_json(&places[i])) == 0;
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    json_decref(strings);
    return text;
}

static enum ls_status put_header(struct output *out, const char *text)
{
    static const char spaces[8] = "        ";
    size_t length = strlen(text), padding = (8 - length % 8) % 8;
    uint64_t n = length + padding;
    LS_TRY(put(out, &n, sizeof n));
    LS_TRY(put(out, text, length));
    return put(out, spaces, padding);
}

static enum ls_status put_data(struct output *out, const struct ls_st_tensor *tensors, const struct place *places,
                               int n, ls_st_fill fill, void *context, void *scratch)
{
    for (int i = 0; i < n; i++) {
        const void *values = places[i].tensor->data;
        if (!values) {
            LS_TRY(fill(context, (int)(places[i].tensor - tensors), scratch));
            values = scratch;
        }
        LS_TRY(put(out, values, places[i].bytes));
    }
    return LS_OK;
}

enum ls_status ls_safetensors_write(const char *path, const struct ls_st_pair *metadata, int n_metadata,
                                    const struct ls_st_tensor *tensors, int n, ls_st_fill fill, void *context,
                                    uint64_t *checksum)
{
    enum ls_status st = LS_FAILED;
    struct output out;
    uint64_t largest = 0;
    char *header = NULL;
    void *scratch = NULL;
    struct place *places = ls_alloc((size_t)n, sizeof *places);
    if (!places)
        return LS_FAILED;
    LS_TRY_GOTO(free_memory, place_all(tensors, n, places, &largest));
    header = header_text(metadata, n_metadata, places, n);
    scratch = ls_alloc(largest, 1);
    if (!header || !scratch) {
        st = header ? LS_FAILED
                    : ls_fail(LS_FAILED,
                              "%s: the header cannot be formatted: a name is not UTF-8, or memory is exhausted", path);
        goto free_memory;
    }
    ls_checksum_init(&out.checksum);
    LS_TRY_GOTO(free_memory, ls_file_writer_open(&out.file, path));
    LS_TRY_GOTO(cancel, put_header(&out, header));
    LS_TRY_GOTO(cancel, put_data(&out, tensors, places, n, fill, context, scratch));
    st = ls_file_writer_commit(&out.file);
    if (st == LS_OK && checksum)
        *checksum = ls_checksum_value(&out.checksum);
    goto free_memory;
cancel:
    ls_file_writer_cancel(&out.file);
free_memory:
    free(header);
    ls_free(scratch);
    ls_free(places);
    return st;
}
