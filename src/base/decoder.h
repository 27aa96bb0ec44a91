/* The interface of JPEG decoders that a module provides as an alternative to libjpeg-turbo (nvJPEG, for example). A decoder
 * gets the bytes of a file and the region to decode. It writes pixels to host memory, like libjpeg-turbo. */
#ifndef LS_BASE_DECODER_H
#define LS_BASE_DECODER_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_decoder_ops;

/* Used by one thread at a time. A module embeds this as the first member of its decoder struct. */
struct ls_decoder {
    const struct ls_decoder_ops *ops; /* borrowed; set by the caller of open */
    const char *why;                  /* static text: the cause of the last LS_DECODER_FAILED */
};

enum ls_decoded {
    LS_DECODED,
    LS_DECODER_UNSUPPORTED, /* this file cannot be decoded here; libjpeg-turbo decodes it */
    LS_DECODER_FAILED       /* the device failed; the file may be valid */
};

/* One baseline JPEG with a valid header. */
struct ls_decoder_job {
    const uint8_t *bytes; /* borrowed; the contents of the file */
    size_t size;
    int channels, height, width;  /* of the image; channels: 1 (grey) or 3 (output as RGB) */
    int shrink;                   /* 1, 2, 4 or 8: each square of shrink x shrink pixels becomes its mean */
    int top, left, rows, columns; /* the region to return, in pixels of the shrunk image */
};

struct ls_decoder_ops {
    /* Checks that the libraries and the device are available. Reports what is missing and what to do. */
    enum ls_status (*check)(void);
    /* Call check first. Reports no error. */
    enum ls_status (*open)(struct ls_decoder **decoder);
    /* Any thread may close a decoder that is not in use. */
    void (*close)(struct ls_decoder *decoder);
    /* Writes the region as interleaved rows without padding. Reports no error: see `why`. */
    enum ls_decoded (*decode)(struct ls_decoder *decoder, const struct ls_decoder_job *job, uint8_t *pixels);
};

#endif
