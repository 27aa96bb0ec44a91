/* Any bytes as a Datum of Caffe: refused, or an image that lies within it. */
#include "data/records/datum.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_datum d;
    if (ls_datum_parse(data, size, &d) && d.image.size > 0 &&
        (d.image.data < data || d.image.size > size || (size_t)(d.image.data - data) > size - d.image.size))
        __builtin_trap();
    return 0;
}
