/* Parts of a data set that has only one. */
#ifndef LS_DATA_SPLIT_H
#define LS_DATA_SPLIT_H

#include "data/data.h"

/* Returns about `share` of the samples (validation), or all others (training). Takes over `whole`, also on failure. The part
 * that a sample belongs to depends on its identity only. LS_USAGE if the part is empty; spec is for that message. */
enum ls_status ls_dataset_split(struct ls_dataset *whole, const char *spec, double share, bool validation,
                                struct ls_dataset **part);
/* Tests whether the data at spec has a validation part of its own. Reports no error. */
bool ls_dataset_has_validation(const char *spec);

#endif
