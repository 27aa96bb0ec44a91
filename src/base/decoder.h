/* Decoders of JPEGs beside libjpeg-turbo: what a module that has a device can do in its place. They see a file's bytes and
 * which part of the image is wanted, and give pixels in the host's memory, so that nothing behind them differs. */
#ifndef LS_BASE_DECODER_H
#define LS_BASE_DECODER_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_decoder_ops;

/* One thread's; a module's own struct begins with it. */
struct ls_decoder {
    const struct ls_decoder_ops *ops; /* borrowed; set by who opens it */
    const char *why;                  /* a text that stays: the cause when decode has failed */
};

enum ls_decoded {
    LS_DECODED,
    LS_DECODER_UNSUPPORTED, /* this file is left to others, whenever it comes */
    LS_DECODER_FAILED       /* the device's error: the file may be fine */
};

/* A baseline JPEG whose header is sound. */
struct ls_decoder_job {
    const uint8_t *bytes; /* borrowed; the file */
    size_t size;
    int channels, height, width;  /* of the image: 1, grey, or 3, to become RGB */
    int shrink;                   /* 1, 2, 4 or 8: a square of so many pixels a side becomes one, their mean */
    int top, left, rows, columns; /* the part that is wanted of the shrunk image */
};

struct ls_decoder_ops {
    /* Is all there that it needs? The error says what is missing and what to do. */
    enum ls_status (*check)(void);
    /* After a check. Says no error. */
    enum ls_status (*open)(struct ls_decoder **decoder);
    /* From any thread, once no other uses it. */
    void (*close)(struct ls_decoder *decoder);
    /* The part as interleaved rows without gaps. Says no error. */
    enum ls_decoded (*decode)(struct ls_decoder *decoder, const struct ls_decoder_job *job, uint8_t *pixels);
};

#endif
