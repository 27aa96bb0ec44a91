/* The classes of a model, and the mapping of the labels of a data set to them.
 *
 * Classes are matched by name, in any order:
 *  - Both have names: a class of the data maps to the class of the model with the same name (or id). A class with samples
 *    that the model lacks is an error; classes of the model without samples are noted.
 *  - Only one side has names, and all of them are numbers: class 7 is the class named "7" ("007").
 *  - Otherwise classes are matched by position, if the model has enough classes. */
#ifndef LS_DATA_CLASSES_H
#define LS_DATA_CLASSES_H

#include "data/data.h"

struct ls_classes {
    int64_t count;            /* outputs of the model */
    int64_t named;            /* number of classes with a name, the first ones; 0: none */
    const char *const *names; /* named entries */
    const char *const *ids;   /* named entries, or NULL: see ls_dataset_info.class_ids */
    bool foreign;             /* the training data is unknown: numbers are no names, folders are in sorted order */
};

/* Returns the classes of a data set; `count` may exceed their number. */
struct ls_classes ls_classes_of(const struct ls_dataset_info *info, int64_t count);
/* Whether two names are of one class. */
bool ls_class_same(const char *a, const char *b);
/* Maps the labels of the set to the classes of the model. spec: the name of the set for messages. note gets "" or a remark
 * for the user, such as classes without samples. */
enum ls_status ls_classes_match(const struct ls_classes *model, struct ls_dataset *set, const char *spec, char *note,
                                size_t room);

#endif
