/* The number of a loader's threads, chosen by measuring while the loader runs.
 *
 * A window is a number of slots. Where the caller waits for a good part of a window, more threads are tried in the next
 * one: as many as one would need if all of them were as fast. They are kept if the slots then come faster, or as fast
 * with less waiting (where other processes set the pace); else the number before is taken again, and the next trial, by
 * one thread more, comes after a time that doubles. So the number settles. Nothing here reads a clock. */
#ifndef LS_DATA_TUNER_H
#define LS_DATA_TUNER_H

#include <stdbool.h>

struct ls_tuner {
    int threads, most; /* in use now; at most, which may change from slot to slot */
    int before;        /* the number before the trial under way; 0: no trial */
    bool settled;      /* a window has come to its end without the wish for more threads, or a trial was in vain */
    int skip;          /* slots still to be left out: they were filled under the number before */
    int ring, window;  /* slots left out after each change; slots of a window at least */
    int slots;         /* of the window under way: */
    double seconds, waited;
    double
        longest; /* without waiting: counted as the mean of the others, for it may be something else (a checkpoint) */
    double old_seconds, old_waited; /* a slot, in the window before the trial */
    int rest, patience;             /* windows before the next trial; how many that will be after a trial in vain */
};

/* ring: slots that can be filled ahead; round: slots that belong together (the passes of a step). */
void ls_tuner_begin(struct ls_tuner *t, int threads, int most, int ring, int round);
/* The caller has taken a slot, `seconds` after the one before, of which it waited for `waited`. True: t->threads has
 * changed. */
bool ls_tuner_slot(struct ls_tuner *t, double seconds, double waited);

#endif
