/* tf.Example messages with ImageNet's features. */
#ifndef LS_DATA_FORMATS_EXAMPLE_H
#define LS_DATA_FORMATS_EXAMPLE_H

#include "data/records/message.h"

/* Features that are missing have no data. */
struct ls_example {
    struct ls_bytes image;    /* image/encoded */
    struct ls_bytes synset;   /* image/class/synset */
    struct ls_bytes filename; /* image/filename */
    bool has_label;
    int64_t label; /* image/class/label */
};

/* False: not such a message. */
bool ls_example_parse(const uint8_t *data, size_t size, struct ls_example *example);

#endif
