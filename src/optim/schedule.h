/* The learning rate as a function of the step alone. A schedule is one file in schedules/ and one line in
 * config/lists/schedules.def; a warm-up one file in warmups/ and one line in config/lists/warmups.def.
 *
 *   schedule                    learning rate after the warm-up
 *   constant                    global
 *   every:N[:F]                 global * F^(epoch / N), whole division; F is 0.1 by default
 *   multistep:A,B,...[:F]       global * F^(how many of A, B, ... are <= epoch)
 *   exponential:G               global * G^epoch
 *   cosine[:MIN]                MIN + (global - MIN) * (1 + cos(pi * t / T)) / 2, t of T steps after it
 *
 *   warm-up                     learning rate during it
 *   stepping:E                  global * (epoch + 1) / (E + 1)
 *   gradual:E                   base + (global - base) / E * epoch, base = global / replicas
 *   iterations:N                global * (step + 1) / (N + 1)
 *
 * Epochs and steps count from 0. global is --lr, or with --lr-per-256 (the linear scaling rule) lr * batch / 256;
 * base is then lr * (batch of one replica) / 256. */
#ifndef LS_OPTIM_SCHEDULE_H
#define LS_OPTIM_SCHEDULE_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define LS_SCHEDULE_MILESTONES 16

struct ls_schedule;

/* One schedule: what --schedule NAME[:ARGUMENTS] means after the warm-up. */
struct ls_schedule_kind {
    const char *name;
    bool whole_run; /* the rate depends on total_steps: a run with it cannot be made longer later */
    /* Reads the text behind the name, "" or ":ARGUMENTS"; false: it is not of the form. NULL: there are no arguments. */
    bool (*parse)(const char *text, struct ls_schedule *s);
    double (*lr)(const struct ls_schedule *s, int64_t step, int64_t epoch);
};

/* One warm-up: what --warmup NAME:LENGTH means. */
struct ls_warmup_kind {
    const char *name;
    bool in_steps; /* its length counts steps; false: epochs */
    double (*lr)(const struct ls_schedule *s, int64_t step, int64_t epoch);
};

struct ls_schedule {
    const struct ls_schedule_kind *kind;
    const struct ls_warmup_kind *warmup; /* NULL: none */
    int64_t warmup_length;               /* epochs, or steps */
    /* Arguments of schedules. */
    double factor; /* every, multistep: the rate is multiplied by it; exponential: factor of each epoch */
    double min;    /* cosine */
    int64_t every;
    int64_t milestones[LS_SCHEDULE_MILESTONES]; /* rising */
    int n_milestones;
    /* Set by ls_schedule_scale. */
    double global, base;
    int64_t steps_per_epoch, total_steps;
};

/* From --schedule and --warmup; LS_USAGE names the option and the forms it accepts. */
enum ls_status ls_schedule_parse(const char *schedule, const char *warmup, struct ls_schedule *s);
/* Whether the rates of that --schedule depend on the length of the run. */
bool ls_schedule_whole_run(const char *schedule);
/* The run's size: lr as given, whether it is per 256 samples, samples of a step, replicas, steps. */
void ls_schedule_scale(struct ls_schedule *s, double lr, bool per_256, int64_t batch, int64_t replicas,
                       int64_t steps_per_epoch, int64_t total_steps);
double ls_schedule_lr(const struct ls_schedule *s, uint64_t step);

/* For the schedules: the steps of the warm-up. */
int64_t ls_schedule_warmup_steps(const struct ls_schedule *s);
/* For the parsers: each takes what it reads off the front of *text; false: it is not there. */
bool ls_take_char(const char **text, char c);
bool ls_take_count(const char **text, int64_t *value); /* 1 to 1e9 */
bool ls_take_number(const char **text, double low, double high, double *value);
/* ":FACTOR" at the end, or nothing. */
bool ls_take_factor(const char *text, double *factor);

#endif
