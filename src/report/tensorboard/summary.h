/* The values of a TensorBoard event. An event with values stands between ls_summary_begin and ls_summary_end. */
#ifndef LS_REPORT_TENSORBOARD_SUMMARY_H
#define LS_REPORT_TENSORBOARD_SUMMARY_H

#include "config/options.h"
#include "report/observer.h"
#include "base/protobuf.h"

/* Begins an event of that step; returns the mark that ls_summary_end takes. */
size_t ls_summary_begin(struct ls_pb *pb, int64_t step);
void ls_summary_end(struct ls_pb *pb, size_t mark);

void ls_summary_scalar(struct ls_pb *pb, const char *tag, double value);
/* A text in Markdown. */
void ls_summary_text(struct ls_pb *pb, const char *tag, const char *text);
/* LS_SUMMARY_BUCKETS buckets of one width from the smallest to the largest value. Values that are not finite are left out. */
enum { LS_SUMMARY_BUCKETS = 30 };
void ls_summary_histogram(struct ls_pb *pb, const char *tag, const float *values, int64_t count);
/* A PNG. */
enum ls_status ls_summary_image(struct ls_pb *pb, const char *tag, const struct ls_observed_image *image);

/* hparams.c: what the HPARAMS tab shows. The options that a run computes with, and the tags of its results; and how the run
 * ended, once it is known for good. */
void ls_summary_hparams(struct ls_pb *pb, const struct ls_options *o);
void ls_summary_ended(struct ls_pb *pb, bool success);

/* The numbers of the fields of a Value message. */
enum { LS_VALUE_TAG = 1, LS_VALUE_SIMPLE = 2, LS_VALUE_IMAGE = 4, LS_VALUE_HISTOGRAM = 5, LS_VALUE_TENSOR = 8 };
/* Begins a value whose metadata names a plugin with that content; returns the mark for ls_pb_close. */
size_t ls_summary_plugin(struct ls_pb *pb, const char *tag, const char *plugin, const void *content, size_t size,
                         int data_class);

#endif
