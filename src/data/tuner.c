#include "data/tuner.h"

#include <math.h>

#define WINDOW_SLOTS 6
#define WINDOW_SECONDS 0.2
/* No trial if the caller waits for less than this part of the time. */
#define WORTH_A_TRIAL 0.05
/* A trial is faster below FASTER of the previous time, and as fast below AS_FAST. */
#define FASTER 0.97
#define AS_FAST 1.02
#define LESS_WAITING 0.8
#define FIRST_PAUSE 2
#define LAST_PATIENCE 1024

static void begin_window(struct ls_tuner *t)
{
    t->slots = 0;
    t->seconds = t->waited = t->longest = 0;
}

void ls_tuner_begin(struct ls_tuner *t, int threads, int max_threads, int ring, int round)
{
    *t = (struct ls_tuner){
        .threads = threads, .max_threads = max_threads > threads ? max_threads : threads, .ring = ring};
    t->skip = ring;
    t->window = (WINDOW_SLOTS + round - 1) / round * round;
    t->pause = FIRST_PAUSE;
    t->settled = t->max_threads == t->threads;
}

static void change_to(struct ls_tuner *t, int threads)
{
    t->threads = threads;
    t->skip = t->ring;
}

/* Estimates the number of threads that keep up with the caller, if all are as fast as the current ones. */
static int threads_needed(const struct ls_tuner *t)
{
    double computing = t->seconds - t->waited, needed = t->threads * t->seconds;
    if (t->pause > FIRST_PAUSE || computing * t->max_threads <= needed)
        return t->pause > FIRST_PAUSE ? t->threads + 1 : t->max_threads;
    int whole = (int)ceil(needed / computing);
    return whole > t->threads ? whole : t->threads + 1;
}

/* Decides at the end of a trial's window. */
static bool trial_helped(struct ls_tuner *t, double seconds, double waited)
{
    bool faster = seconds <= FASTER * t->old_seconds;
    bool helped = faster || (seconds <= AS_FAST * t->old_seconds && waited <= LESS_WAITING * t->old_waited);
    if (!helped) {
        change_to(t, t->before);
        t->rest = t->pause;
        t->pause = t->pause < LAST_PATIENCE ? 2 * t->pause : LAST_PATIENCE;
        t->settled = true;
    }
    t->before = 0;
    return helped;
}

static bool end_window(struct ls_tuner *t)
{
    double computing = t->seconds - t->waited, others = t->slots - 1;
    t->seconds = t->waited + (computing - t->longest) * t->slots / others;
    double seconds = t->seconds / t->slots, waited = t->waited / t->slots;
    if (t->before > 0 && !trial_helped(t, seconds, waited))
        return true;
    if (t->rest > 0) {
        t->rest--;
        return false;
    }
    if (t->threads == t->max_threads || waited <= WORTH_A_TRIAL * seconds) {
        t->settled = true;
        return false;
    }
    t->before = t->threads;
    t->old_seconds = seconds;
    t->old_waited = waited;
    change_to(t, threads_needed(t));
    return true;
}

bool ls_tuner_slot(struct ls_tuner *t, double seconds, double waited)
{
    if (t->threads > t->max_threads) {
        t->before = 0;
        begin_window(t);
        change_to(t, t->max_threads);
        return true;
    }
    if (t->threads == t->max_threads && t->before == 0)
        return false;
    if (t->skip > 0) {
        t->skip--;
        return false;
    }
    t->slots++;
    t->seconds += seconds;
    t->waited += waited;
    t->longest = seconds - waited > t->longest ? seconds - waited : t->longest;
    if (t->slots < t->window || t->seconds < WINDOW_SECONDS)
        return false;
    bool changed = end_window(t);
    begin_window(t);
    return changed;
}
