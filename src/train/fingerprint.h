/* What a data set is, apart from where it lies: format, number and size of images, classes, and for each class the number of
 * its samples with digests of their names and of what is in them. It tells whether a resumed run, and every rank, has the
 * data that the run was started with, and where not, in which classes.
 *
 * What is in a sample: the size of its file, or its bytes where they are in memory. Sizes cost a system call each: of large
 * sets some LS_FINGERPRINT_SIZES files are chosen, by their names. */
#ifndef LS_TRAIN_FINGERPRINT_H
#define LS_TRAIN_FINGERPRINT_H

#include "config/options.h"
#include "train/task.h"

#define LS_FINGERPRINT_SIZES 65536

/* Of the task's parts, as JSON; freed by ls_free. Says so when it takes long. */
enum ls_status ls_fingerprint_take(const struct ls_task *task, const struct ls_options *o, char **text);
/* In what part ("train" or "test") of two fingerprints differs: "" or a few words, in which `then` and `now` name the two.
 * A part that one of them lacks does not differ. */
enum ls_data_change {
    LS_DATA_SAME,
    LS_DATA_MENDED, /* the same files, some with another size: a broken one may have been mended */
    LS_DATA_OTHER
};
enum ls_data_change ls_fingerprint_compare(const char *was, const char *is, const char *part, const char *then,
                                           const char *now, char *text, size_t room);
/* Is the data still that of the checkpoint (its data.json)? Other training data is an error; other test data, and files of
 * another size, are a warning. */
enum ls_status ls_fingerprint_check(const char *checkpoint, const char *text);

#endif
