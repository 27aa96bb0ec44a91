/* The live line: a label, a bar, and behind it as many fields as the width allows, the first ones first.
 *   epoch 2/5 ━━━━━━━━━━╸───────── 412/938  loss 0.123  top1 96.1%  1:07 left  14252 samples/s */
#ifndef LS_REPORT_LIVE_H
#define LS_REPORT_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#define LS_LIVE_ROOM 1024

struct ls_live {
    bool colour, utf8;
    int width; /* of the terminal */
};

/* Fields that are "" or NULL are left out. The text fits in width - 1 columns. */
void ls_live_line(const struct ls_live *look, const char *label, int64_t done, int64_t total, const char *const *fields,
                  int n_fields, char text[LS_LIVE_ROOM]);
/* Seconds as people write them: 0:07, 12:34, 1:02:03, 3d 04h. */
void ls_live_duration(double seconds, char text[32]);

#endif
