/* IDX files from outside, plain and gzip: the input is taken as an images file, then as a labels file. */
#include "base/log.h"
#include "data/formats/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *bytes, size_t size)
{
    struct ls_idx idx;
    int64_t classes;
    volatile uint8_t last;
    if (ls_idx_parse(bytes, size, "input", 3, &idx) == LS_OK)
        last = idx.values[idx.dims[0] * idx.dims[1] * idx.dims[2] - 1];
    if (ls_idx_parse(bytes, size, "input", 1, &idx) == LS_OK && ls_idx_count_classes(&idx, "input", &classes) == LS_OK)
        last = idx.values[idx.dims[0] - 1];
    (void)last;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_blob blob;
    ls_log_mute(1);
    parse(data, size);
    if (ls_blob_gunzip(data, size, "input", &blob) == LS_OK) {
        parse(blob.bytes, blob.size);
        ls_blob_release(&blob);
    }
    return 0;
}
