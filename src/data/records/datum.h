/* Caffe's Datum: an image, encoded or as planes of bytes, and its label. */
#ifndef LS_DATA_FORMATS_DATUM_H
#define LS_DATA_FORMATS_DATUM_H

#include "data/records/message.h"

struct ls_datum {
    struct ls_bytes image;
    bool is_encoded; /* a file such as JPEG; otherwise channels x height x width bytes */
    int32_t channels, height, width, label;
};

/* False: not such a message, or the planes have another size than it says. Images of floats have no bytes. */
bool ls_datum_parse(const uint8_t *data, size_t size, struct ls_datum *datum);

#endif
