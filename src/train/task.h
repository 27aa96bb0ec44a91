/* The data sets that a command works on, and the model size that fits them. */
#ifndef LS_TRAIN_TASK_H
#define LS_TRAIN_TASK_H

#include "config/options.h"
#include "data/data.h"
#include "graph/build.h"
#include "checkpoint/model_card.h"
#include "exec/engine.h"

struct ls_task {
    struct ls_dataset *train, *test; /* owned; NULL: not requested */
    struct ls_model_size size;       /* batch: samples of one pass */
    struct ls_augment augment, test_augment;
    struct ls_trace *trace; /* borrowed; records threads that load for evaluation; NULL: none */
    int loader_threads;     /* that a loader of this run has settled on; 0: none yet */
};

/* The transform of images in evaluation. It is the same in train, eval and predict. It is that of the card if the
 * card has one, else --augment without its random choices. --eval-resize and --eval-crop override both. info
 * describes the training images, or the images at hand when those are not known; it may be NULL. Values of the card
 * override info. */
enum ls_status ls_task_transform(const struct ls_options *o, const struct ls_model_card *card,
                                 const struct ls_dataset_info *info, const struct ls_model_size *size,
                                 struct ls_augment *a);

/* Opens the requested parts. The input of the model is --input, else the size of the images, else (images of many
 * sizes) the model's default. The number of classes is --classes or that of the data. Test images are normalised
 * like the training images: with the mean and deviation of the card, which may be NULL, else with those of the data. */
enum ls_status ls_task_open(struct ls_task *t, const struct ls_options *o, bool train, bool test,
                            const struct ls_model_card *card);
/* Without data, the size is --input and --classes, else the model's default. */
enum ls_status ls_task_size(struct ls_task *t, const struct ls_options *o);
void ls_task_close(struct ls_task *t);

/* The number of cores for this process. Where several processes of a host see the same cores, it is the share of
 * this process, but at least its number of compute threads. */
int ls_task_cores(const struct ls_engine *e);
/* Returns the number of threads that a loader starts with and sets *most, which is ls_loader_options.max_threads.
 * With --loader-threads they are its value and 0. Otherwise they are half of the process's cores (all but one where
 * a device computes) and all of its cores. */
int ls_task_loader_threads(const struct ls_options *o, const struct ls_engine *e, int *most);
/* Makes a loader that reads every test sample once, in order, or those of a list, which stays the caller's; some NULL: all.
 * Where the engine has a comm, it reads the share of this process. */
struct ls_samples {
    const int64_t *list;
    int64_t count;
};
enum ls_status ls_task_test_loader(const struct ls_task *t, const struct ls_options *o, const struct ls_engine *e,
                                   enum ls_form form, const struct ls_samples *some, struct ls_loader **loader);

#endif
