/* Any bytes as a tf.Example: refused, or features that lie within it. */
#include "data/records/example.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void within(const struct ls_bytes *b, const uint8_t *data, size_t size)
{
    if (b->data && (b->data < data || b->size > size || (size_t)(b->data - data) > size - b->size))
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_example e;
    if (!ls_example_parse(data, size, &e))
        return 0;
    within(&e.image, data, size);
    within(&e.synset, data, size);
    within(&e.filename, data, size);
    return 0;
}
