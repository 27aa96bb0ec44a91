/* Samples in tar files (WebDataset). */
#ifndef LS_DATA_FORMATS_TAR_H
#define LS_DATA_FORMATS_TAR_H

#include "data/records/records.h"

/* Finds the samples of one tar file. */
enum ls_status ls_tar_scan(struct ls_shard_scan *s);

#endif
