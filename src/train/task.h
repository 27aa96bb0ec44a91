/* What a command works on: the data sets, and the size of the model that fits them. */
#ifndef LS_TRAIN_TASK_H
#define LS_TRAIN_TASK_H

#include "config/options.h"
#include "data/data.h"
#include "graph/build.h"
#include "checkpoint/model_card.h"
#include "exec/engine.h"

struct ls_task {
    struct ls_dataset *train, *test; /* owned; NULL: not asked for */
    struct ls_model_size size;       /* batch: samples of one pass */
    struct ls_augment augment, test_augment;
    int loader_threads; /* that a loader of this run has come to; 0: none has */
};

/* The one transform that images are evaluated with, in train, eval and predict: the card's where it has one, else what
 * --augment keeps without its random choices; --eval-resize and --eval-crop are stronger. info: of the images that the model
 * is trained on, or NULL, or where the card does not say of those at hand. */
enum ls_status ls_task_transform(const struct ls_options *o, const struct ls_model_card *card,
                                 const struct ls_dataset_info *info, const struct ls_model_size *size,
                                 struct ls_augment *a);

/* Open the parts asked for. The model's input is --input, else the images' size, else (images of many sizes)
 * the model's own; classes are --classes or the data's. Test images are normalised like the training images:
 * those of the card, which may be NULL, else those of the data. */
enum ls_status ls_task_open(struct ls_task *t, const struct ls_options *o, bool train, bool test,
                            const struct ls_model_card *card);
/* No data: --input and --classes, else the model's own. */
enum ls_status ls_task_size(struct ls_task *t, const struct ls_options *o);
void ls_task_close(struct ls_task *t);

/* The cores for this process: its share of those it sees, where several processes of a host see them all, and no fewer than
 * it computes with. */
int ls_task_cores(const struct ls_engine *e);
/* Threads that a loader begins with, and ls_loader_options.max_threads: --loader-threads and 0, or half of the process's cores, nearly
 * all where a device computes, and all of them. */
int ls_task_loader_threads(const struct ls_options *o, const struct ls_engine *e, int *most);
/* A loader over the test set from its first sample to its last, each once, or where the engine has a comm this process's
 * share of it. */
enum ls_status ls_task_test_loader(const struct ls_task *t, const struct ls_options *o, const struct ls_engine *e,
                                   enum ls_form form, struct ls_loader **loader);

#endif
