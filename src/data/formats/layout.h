/* Which folders of an image data set are which. */
#ifndef LS_DATA_FORMATS_LAYOUT_H
#define LS_DATA_FORMATS_LAYOUT_H

#include "data/formats/files.h"
#include <limits.h>

struct ls_layout {
    char classes[PATH_MAX]; /* its folders are the classes, */
    char images[PATH_MAX];  /* and in its folders of these names are the part's images */
    bool plain;             /* there are no parts: all images are in both */
};

/* part: "train" or "test". Names of parts count in any case: train or training; val, valid, validation, eval, evaluation, test
 * or testing, the first of these that is there. A part holds folders: one that does not is a class that happens to be called
 * so, if folders of other names stand beside it, and an error otherwise. */
enum ls_status ls_layout_find(struct ls_files *files, const char *spec, const char *part, struct ls_layout *layout);
bool ls_layout_is_part(const char *name);
/* Is spec one level too high: nothing in it but one folder, which is no part and has no images of its own? Then that folder. */
bool ls_layout_inner(const char *spec, char inner[PATH_MAX]);

#endif
