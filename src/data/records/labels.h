/* Classes out of the labels of samples, as text. Labels are whole numbers or names. Classes are the numbers from 0, or from 1
 * if no label is 0, up to the largest; or the sorted names. Either is a class name in the model file, so that another part of
 * the data may begin elsewhere or lack classes. */
#ifndef LS_DATA_FORMATS_LABELS_H
#define LS_DATA_FORMATS_LABELS_H

#include "base/memory.h"
#include "base/status.h"

struct ls_labels {
    const char **names; /* owned array; the strings are in the arena */
    int64_t classes;
};

/* Finds the classes of n labels and the class of each, of[n]. */
enum ls_status ls_labels_find(const char *const *label, int64_t n, struct ls_arena *arena, int32_t *of,
                              struct ls_labels *found);

#endif
