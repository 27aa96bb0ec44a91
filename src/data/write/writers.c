#include "data/write/writers.h"

const struct ls_writer_ops *const ls_writers[] = {
#define X(name) &ls_writer_##name,
#include "config/lists/writers.def"
    NULL};
