/* The classes of a model, and how the labels of a data set become numbers of them.
 *
 * Classes are matched by name, in any order:
 *  - both have names: a class of the data is the model's class of the same name (or id). A class with samples that the
 *    model does not have is an error; classes of the model without samples are a note.
 *  - only one side has names, and all of them are numbers: class 7 is the class called "7" ("007").
 *  - otherwise there is nothing to match by: positions hold, if the model has enough classes. */
#ifndef LS_DATA_CLASSES_H
#define LS_DATA_CLASSES_H

#include "data/data.h"

struct ls_classes {
    int64_t count;            /* outputs of the model */
    int64_t named;            /* the first of them that have a name; 0: none has */
    const char *const *names; /* named entries */
    const char *const *ids;   /* named entries, or NULL: see ls_dataset_info.class_ids */
    bool foreign; /* nobody knows what it was trained on: numbers are no names, folders come in sorted order */
};

/* Those that a data set has; `count` may be more than it has. */
struct ls_classes ls_classes_of(const struct ls_dataset_info *info, int64_t count);
/* Give the labels of the set the numbers of the model's classes. spec: the set's name for messages. note: "" or what the
 * user should know, such as classes without samples. */
enum ls_status ls_classes_match(const struct ls_classes *model, struct ls_dataset *set, const char *spec, char *note,
                                size_t room);

#endif
