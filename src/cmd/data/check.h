/* What `lockstep data check` finds in the parts of a data set, and how it is printed. */
#ifndef LS_CMD_DATA_CHECK_H
#define LS_CMD_DATA_CHECK_H

#include "base/status.h"
#include "data/data.h"
#include <stdbool.h>
#include <stdint.h>

struct ls_broken_sample {
    int64_t sample;
    char why[200];
};

/* Sums over all pixels, and sums over all images of the mean of each image. They are integers, so that the result
 * does not depend on how threads share the work. */
struct ls_tally {
    int64_t pixels, sum[3], squares[3];
    int64_t images, image_sum[3], image_squares[3];
    int min_height, max_height, min_width, max_width;
};

/* Adds an image to the sums. */
void ls_tally_image(struct ls_tally *t, const struct ls_image *image);
/* Adds the sums of t to those of all. */
void ls_tally_add(struct ls_tally *all, const struct ls_tally *t);
/* Mean and deviation of a channel, of values from 0 to 1. Every image has the same weight, whatever its size, because
 * all images have one size in training. */
double ls_tally_mean(const struct ls_tally *t, int c);
double ls_tally_deviation(const struct ls_tally *t, int c);
/* The same with the same weight for every pixel. */
double ls_tally_pixel_mean(const struct ls_tally *t, int c);
double ls_tally_pixel_deviation(const struct ls_tally *t, int c);

struct ls_data_part {
    const char *name;
    struct ls_dataset *set;    /* owned; NULL when it could not be opened */
    int64_t *class_counts;     /* owned */
    int64_t smallest, largest; /* the classes with the fewest and the most samples */
    struct ls_tally tally;
    struct ls_broken_sample *broken; /* owned; sorted by sample */
    int64_t n_broken, room;
    bool same; /* the images are those of the previous part */
};

/* Prints the train and test parts as text. The train part is open. */
enum ls_status ls_data_print_text(const char *spec, const struct ls_data_part parts[2]);
/* Prints n parts as one JSON object. */
enum ls_status ls_data_print_json(const char *spec, const struct ls_data_part *parts, int n);

#endif
