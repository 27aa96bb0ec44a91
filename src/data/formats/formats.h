/* The ops tables of the formats, each at the end of its file. */
#ifndef LS_DATA_FORMATS_FORMATS_H
#define LS_DATA_FORMATS_FORMATS_H

#include "data/data.h"

#define X(name) extern const struct ls_dataset_ops ls_format_##name;
#include "config/lists/formats.def"

#endif
