/* --tta: several views of an image in evaluation, for all images or for those of which the model is least certain. */
#ifndef LS_EXEC_TTA_H
#define LS_EXEC_TTA_H

#include "base/status.h"
#include "graph/graph.h"

struct ls_tta {
    struct ls_views views;
    double least; /* share of the images that are evaluated in all views, the others in one; 1: all */
};

/* Reads the option; text NULL: one view. */
enum ls_status ls_tta_parse(const char *text, struct ls_tta *tta);

#endif
