/* The folder layout of an image data set. */
#ifndef LS_DATA_FORMATS_LAYOUT_H
#define LS_DATA_FORMATS_LAYOUT_H

#include "data/files/files.h"
#include <limits.h>

struct ls_layout {
    char classes[PATH_MAX]; /* the folder whose subfolders are the classes */
    char images[PATH_MAX];  /* the folder whose subfolders of these names contain the images of the part */
    char labels[PATH_MAX];  /* the label file of a part without class folders (flat_part.h); "": the part has them */
    size_t above;           /* length of the path of the data set */
    bool plain;             /* there are no parts: both use all images */
};

/* Finds the folders of a part, "train" or "test". Names of parts, in any case: train or training; the first of val, valid,
 * validation, eval, evaluation, test and testing that exists. A part contains folders. A folder of such a name without
 * subfolders is a class if folders of other names lie beside it, and an error otherwise. */
enum ls_status ls_layout_find(struct ls_files *files, const char *spec, const char *part, struct ls_layout *layout);
bool ls_layout_is_part(const char *name);
/* Tests whether spec is one level too high: its only entry is a folder that is no part and contains no images. Returns that
 * folder. */
bool ls_layout_inner(const char *spec, char inner[PATH_MAX]);

#endif
