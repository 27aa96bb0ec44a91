#include "report/tensorboard/summary.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/formats/png.h"
#include "report/tensorboard/event_file.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { EVENT_SUMMARY = 5, SUMMARY_VALUE = 1, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, TYPE_STRING = 7, CLASS_TENSOR = 2 };

size_t ls_summary_begin(struct ls_pb *pb, int64_t step)
{
    ls_pb_clear(pb);
    ls_event_begin(pb, step);
    return ls_pb_open(pb, EVENT_SUMMARY);
}

void ls_summary_end(struct ls_pb *pb, size_t mark)
{
    ls_pb_close(pb, mark);
}

void ls_summary_scalar(struct ls_pb *pb, const char *tag, double value)
{
    size_t mark = ls_pb_open(pb, SUMMARY_VALUE);
    ls_pb_text(pb, LS_VALUE_TAG, tag);
    ls_pb_float(pb, LS_VALUE_SIMPLE, (float)value);
    ls_pb_close(pb, mark);
}

size_t ls_summary_plugin(struct ls_pb *pb, const char *tag, const char *plugin, const void *content, size_t size,
                         int data_class)
{
    size_t value = ls_pb_open(pb, SUMMARY_VALUE);
    ls_pb_text(pb, LS_VALUE_TAG, tag);
    size_t metadata = ls_pb_open(pb, VALUE_METADATA), data = ls_pb_open(pb, METADATA_PLUGIN);
    ls_pb_text(pb, PLUGIN_NAME, plugin);
    if (size > 0)
        ls_pb_bytes(pb, PLUGIN_CONTENT, content, size);
    ls_pb_close(pb, data);
    if (data_class > 0)
        ls_pb_whole(pb, METADATA_CLASS, data_class);
    ls_pb_close(pb, metadata);
    return value;
}

void ls_summary_text(struct ls_pb *pb, const char *tag, const char *text)
{
    size_t value = ls_summary_plugin(pb, tag, "text", NULL, 0, CLASS_TENSOR);
    size_t tensor = ls_pb_open(pb, LS_VALUE_TENSOR);
    ls_pb_whole(pb, TENSOR_TYPE, TYPE_STRING);
    ls_pb_close(pb, ls_pb_open(pb, TENSOR_SHAPE)); /* a scalar */
    ls_pb_text(pb, TENSOR_STRING, text);
    ls_pb_close(pb, tensor);
    ls_pb_close(pb, value);
}

/* --- histograms ------------------------------------------------------------------------------------------- */

struct histogram {
    double min, max, count, sum, squares;
    double limit[LS_SUMMARY_BUCKETS], bucket[LS_SUMMARY_BUCKETS];
};

static void measure(struct histogram *h, const float *values, int64_t count)
{
    double min = DBL_MAX, max = -DBL_MAX, sum = 0, squares = 0;
    int64_t finite = 0;
#pragma omp parallel for reduction(min : min) reduction(max : max) reduction(+ : sum, squares, finite) if (count > 65536)
    for (int64_t i = 0; i < count; i++) {
        double v = (double)values[i];
        if (!isfinite(v))
            continue;
        min = v < min ? v : min;
        max = v > max ? v : max;
        sum += v;
        squares += v * v;
        finite++;
    }
    *h = (struct histogram){.count = (double)finite, .sum = sum, .squares = squares};
    h->min = finite ? min : 0;
    h->max = finite ? max : 0;
}

/* All values are in the first bucket if they are equal. */
static void fill_buckets(struct histogram *h, const float *values, int64_t count)
{
    int64_t bucket[LS_SUMMARY_BUCKETS] = {0};
    double min = h->min, width = (h->max - h->min) / LS_SUMMARY_BUCKETS, scale = width > 0 ? 1 / width : 0;
#pragma omp parallel for reduction(+ : bucket[:LS_SUMMARY_BUCKETS]) if (count > 65536)
    for (int64_t i = 0; i < count; i++) {
        double v = (double)values[i];
        if (!isfinite(v))
            continue;
        int at = (int)((v - min) * scale);
        bucket[at < LS_SUMMARY_BUCKETS ? at : LS_SUMMARY_BUCKETS - 1]++;
    }
    for (int b = 0; b < LS_SUMMARY_BUCKETS; b++) {
        h->bucket[b] = (double)bucket[b];
        h->limit[b] = b + 1 < LS_SUMMARY_BUCKETS ? min + width * (b + 1) : h->max;
    }
}

void ls_summary_histogram(struct ls_pb *pb, const char *tag, const float *values, int64_t count)
{
    enum { MIN = 1, MAX = 2, NUM = 3, SUM = 4, SQUARES = 5, LIMIT = 6, BUCKET = 7 };
    struct histogram h;
    measure(&h, values, count);
    fill_buckets(&h, values, count);
    size_t value = ls_pb_open(pb, SUMMARY_VALUE);
    ls_pb_text(pb, LS_VALUE_TAG, tag);
    size_t histogram = ls_pb_open(pb, LS_VALUE_HISTOGRAM);
    ls_pb_double(pb, MIN, h.min);
    ls_pb_double(pb, MAX, h.max);
    ls_pb_double(pb, NUM, h.count);
    ls_pb_double(pb, SUM, h.sum);
    ls_pb_double(pb, SQUARES, h.squares);
    ls_pb_doubles(pb, LIMIT, h.limit, LS_SUMMARY_BUCKETS);
    ls_pb_doubles(pb, BUCKET, h.bucket, LS_SUMMARY_BUCKETS);
    ls_pb_close(pb, histogram);
    ls_pb_close(pb, value);
}

/* --- images ----------------------------------------------------------------------------------------------- */

enum ls_status ls_summary_image(struct ls_pb *pb, const char *tag, const struct ls_observed_image *image)
{
    enum { HEIGHT = 1, WIDTH = 2, COLOURS = 3, ENCODED = 4 };
    uint8_t *png = NULL;
    size_t size = 0;
    LS_TRY(ls_png_encode(image->pixels, image->channels, image->height, image->width, &png, &size));
    size_t value = ls_pb_open(pb, SUMMARY_VALUE);
    ls_pb_text(pb, LS_VALUE_TAG, tag);
    size_t mark = ls_pb_open(pb, LS_VALUE_IMAGE);
    ls_pb_whole(pb, HEIGHT, image->height);
    ls_pb_whole(pb, WIDTH, image->width);
    ls_pb_whole(pb, COLOURS, image->channels);
    ls_pb_bytes(pb, ENCODED, png, size);
    ls_pb_close(pb, mark);
    ls_pb_close(pb, value);
    ls_free(png);
    return LS_OK;
}
