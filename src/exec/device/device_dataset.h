/* How the images of a data set come to one of the engine's programs: as planes, or where the backend makes them itself
 * (backend.h, hold) as bytes, or as crops out of the whole data set in the backend's memory, when it has room for it and
 * nothing is to be scaled. Values, and so results, are the same in every form. */
#ifndef LS_EXEC_DEVICE_DATASET_H
#define LS_EXEC_DEVICE_DATASET_H

#include "data/data.h"
#include "exec/engine.h"

struct ls_device_dataset {
    bool open;
    enum ls_form form;
    const struct ls_backend *backend; /* borrowed */
    void *held;                       /* owned; the backend's memory, with crops */
    size_t held_bytes;
};

/* Decides, and sets the program's source of images. Holding a data set reads all of it. A sample that cannot be read,
 * or is not of the size the data set says, is no error here: the set is then not held, and the loader reports it when
 * it reads that sample. */
enum ls_status ls_device_dataset_open(struct ls_device_dataset *s, const struct ls_engine *e, const struct ls_net *net,
                                      struct ls_dataset *set, const struct ls_augment *a);
/* Another program reads the same images in the same form; set and a as above. */
enum ls_status ls_device_dataset_share(const struct ls_device_dataset *s, const struct ls_net *net,
                                       const struct ls_dataset *set, const struct ls_augment *a);
/* The same without a data set, for bytes as `pixels` says: the form is pixels, or planes. */
enum ls_status ls_device_dataset_open_bytes(struct ls_device_dataset *s, const struct ls_engine *e,
                                            const struct ls_net *net, const struct ls_pixels *pixels);
/* Makes a slot of one of these forms the input of a net's next pass. The slot stays until the results of that pass. */
enum ls_status ls_device_dataset_input(const struct ls_backend *b, const struct ls_net *net,
                                       const struct ls_slot *slot);
/* After the last pass; takes one that is not open. */
void ls_device_dataset_close(struct ls_device_dataset *s);

#endif
