/* The ops tables of the writers, each at the end of its file. */
#ifndef LS_DATA_WRITE_WRITERS_H
#define LS_DATA_WRITE_WRITERS_H

#include "data/write/write.h"

#define X(name) extern const struct ls_writer_ops ls_writer_##name;
#include "config/lists/writers.def"

#endif
