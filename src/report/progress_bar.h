/* The progress bar: a label, a bar, and as many of the fields as fit the width, in order.
 *   epoch 2/5 ━━━━━━━━━━╸───────── 412/938  loss 0.123  top1 96.1%  1:07 left  14252 samples/s */
#ifndef LS_REPORT_PROGRESS_BAR_H
#define LS_REPORT_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>

#define LS_BAR_ROOM 1024

struct ls_bar_style {
    bool colour, utf8;
    int width; /* of the terminal */
};

/* Formats a progress bar of at most width - 1 columns. Skips fields that are "" or NULL. */
void ls_progress_bar(const struct ls_bar_style *style, const char *label, int64_t done, int64_t total,
                     const char *const *fields, int n_fields, char text[LS_BAR_ROOM]);
/* Formats seconds: 0:07, 12:34, 1:02:03, 3d 04h. */
void ls_format_duration(double seconds, char text[32]);

#endif
