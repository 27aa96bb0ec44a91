/* Chooses the number of a loader's threads by measurement while the loader runs.
 *
 * A window is a number of slots. If the caller waits for a considerable part of a window, the tuner tries more threads in the
 * next window: the number that would be needed if all were equally fast. It keeps them if slots then come faster, or as fast
 * with less waiting (if other processes limit the speed). Otherwise it returns to the previous number, and the next trial, of
 * one more thread, follows after a pause that doubles each time. So the number settles. The tuner reads no clock. */
#ifndef LS_DATA_TUNER_H
#define LS_DATA_TUNER_H

#include <stdbool.h>

struct ls_tuner {
    int threads, max_threads; /* in use; the limit, which may change from slot to slot */
    int before;               /* the number before the current trial; 0: no trial */
    bool settled;             /* a window ended without need for more threads, or a trial failed */
    int skip;                 /* slots still to skip: they were filled with the previous number */
    int ring, window;         /* slots to skip after each change; minimum slots of a window */
    int slots;                /* of the current window: slots, their time and waiting time */
    double seconds, waited;
    double longest; /* longest time of a slot without waiting; replaced by the mean of the others, because it
                                     * may be something else, such as a checkpoint */
    double old_seconds, old_waited; /* per slot, in the window before the trial */
    int rest, pause;                /* windows until the next trial; length of the pause after a failed trial */
};

/* ring: slots that can be filled ahead; round: slots that belong together (the passes of a step). */
void ls_tuner_begin(struct ls_tuner *t, int threads, int max_threads, int ring, int round);
/* Call it for each slot that the caller takes: `seconds` after the previous one, `waited` of them spent waiting. Returns true
 * if t->threads has changed. */
bool ls_tuner_slot(struct ls_tuner *t, double seconds, double waited);

#endif
