#include "data/formats/formats.h"

#include <stddef.h>

const struct ls_dataset_ops *const ls_dataset_formats[] = {
#define X(name) &ls_format_##name,
#include "config/lists/formats.def"
    NULL,
};
