/* A contact sheet: samples as a network sees them, with their classes. */
#ifndef LS_CMD_DATA_SHEET_SHEET_H
#define LS_CMD_DATA_SHEET_SHEET_H

#include "config/options.h"
#include "data/data.h"
#include "train/task.h"

struct ls_sheet {
    struct ls_task task; /* owned; the training part */
    int64_t count;       /* of samples */
    int channels;        /* 1 or 3 */
    uint8_t *pixels;     /* owned; count x height x width x channels, of task.augment */
    int64_t *sample;     /* owned; number of each in the data set */
    int32_t *label;      /* owned */
};

/* Reads the first --samples samples of the first epoch, in the order and with the random choices of training. */
enum ls_status ls_sheet_load(struct ls_sheet *s, const struct ls_options *o);
void ls_sheet_release(struct ls_sheet *s);
const uint8_t *ls_sheet_pixels(const struct ls_sheet *s, int64_t i);
/* Returns the name of the class of sample i, or its number in room. */
const char *ls_sheet_class(const struct ls_sheet *s, int64_t i, char room[32]);
/* "40 of 50000 samples, 3x32x32, augment crop:4,flip, seed 1, epoch 1" */
void ls_sheet_title(const struct ls_sheet *s, const struct ls_options *o, char text[512]);

/* Write the sheet to a file in memory, owned by the caller. */
enum ls_status ls_sheet_png(const struct ls_sheet *s, const struct ls_options *o, uint8_t **bytes, size_t *size);
enum ls_status ls_sheet_html(const struct ls_sheet *s, const struct ls_options *o, uint8_t **bytes, size_t *size);

#endif
