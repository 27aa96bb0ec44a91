/* The fingerprint of a data set. It does not depend on where the data is. It has the format, the number and size of
 * images, the classes, and for each class the number of its samples with digests of their names and contents. It
 * shows whether a resumed run, and every rank, has the data that the run was started with, and which classes differ.
 *
 * The content of a sample is the size of its file, or its bytes where they are in memory. Each size costs a system
 * call. In large sets about LS_FINGERPRINT_SIZES files are therefore chosen, by their names. */
#ifndef LS_TRAIN_FINGERPRINT_H
#define LS_TRAIN_FINGERPRINT_H

#include "config/options.h"
#include "train/task.h"

#define LS_FINGERPRINT_SIZES 65536

/* Takes the fingerprint of the task's parts, as JSON; freed by ls_free. Prints a message when it takes long. */
enum ls_status ls_fingerprint_take(const struct ls_task *task, const struct ls_options *o, char **text);
/* Compares one part ("train" or "test") of two fingerprints. text becomes "" or a short description, in which `then`
 * and `now` name the two. A part that one of them lacks does not differ. */
enum ls_data_change {
    LS_DATA_SAME,
    LS_DATA_MENDED, /* the same files, some with another size: a broken file may have been repaired */
    LS_DATA_OTHER
};
enum ls_data_change ls_fingerprint_compare(const char *was, const char *is, const char *part, const char *then,
                                           const char *now, char *text, size_t room);
/* Checks that the data is that of the checkpoint (its data.json). Other training data is an error. Other test data
 * and files of another size are a warning. */
enum ls_status ls_fingerprint_check(const char *checkpoint, const char *text);

#endif
