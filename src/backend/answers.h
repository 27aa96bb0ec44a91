/* Which kernel won for which question on this machine: what a tuner remembers. A text file in the user's cache, one line
 * each,
 *     machine | question | kernel | milliseconds
 * so that the next start asks nothing. The answers a program uses are also kept by its run, and a run that is resumed goes
 * on with the very kernels (and so the very bits) it began with, whatever became of the cache. */
#ifndef LS_BACKEND_ANSWERS_H
#define LS_BACKEND_ANSWERS_H

#include "base/status.h"
#include <stdbool.h>

struct ls_answer {
    char question[320], name[96];
    double ms;
    bool recorded; /* the program, or the run it belongs to, computes with it */
};

struct ls_answers {
    char machine[160];      /* without '|' */
    struct ls_answer *list; /* of this machine, later ones count for more; owned */
    int n, room;
    bool learned;
};

/* machine is set; all else is zero. cache: a path; record: lines; either may be NULL. */
enum ls_status ls_answers_open(struct ls_answers *a, const char *cache, const char *record);
enum ls_status ls_answers_add(struct ls_answers *a, const char *question, const char *name, double ms);
/* Keep what was learned in the cache; *choices gets the recorded ones as lines (ls_free); free all. */
enum ls_status ls_answers_close(struct ls_answers *a, const char *cache, char **choices);

#endif
