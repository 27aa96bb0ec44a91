/* The learning rate as a function of the step, and for plateau of the evaluations so far. A schedule is one file in
 * schedules/ and one line in config/lists/schedules.def; a warm-up one file in warmups/ and one line in
 * config/lists/warmups.def.
 *
 *   schedule                    learning rate after the warm-up
 *   constant                    global
 *   every:N[:F]                 global * F^(epoch / N), whole division; F is 0.1 by default
 *   multistep:A,B,...[:F]       global * F^(how many of A, B, ... are <= epoch)
 *   exponential:G               global * G^epoch
 *   exponential:G:N             global * G^(step / N), no whole division: PyTorch's ExponentialLR by iteration for N = 1
 *   cosine[:MIN]                MIN + (global - MIN) * (1 + cos(pi * t / T)) / 2, t of T steps after it
 *   polynomial[:P[:MIN]]        MIN + (global - MIN) * (1 - t / T)^P; P is 1 by default
 *   plateau[:N[:F[:MIN]]]       global * F^(how often more than N evaluations in a row had no lower loss), at least MIN
 *
 *   warm-up                     learning rate during it
 *   stepping:E                  global * (epoch + 1) / (E + 1)
 *   gradual:E[:BASE]            base + (global - base) / E * epoch, base = BASE or, without it, global / replicas
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
    /* Takes the loss of an evaluation into s->memory; NULL: the rate does not depend on evaluations. */
    void (*observe)(struct ls_schedule *s, double loss);
};

/* What a schedule remembers of evaluations. It is part of the state of a run: checkpoints keep it. */
struct ls_schedule_memory {
    bool any;    /* an evaluation was observed; false: all others are 0 */
    double rate; /* after the last one */
    double best; /* the lowest loss */
    int64_t bad; /* evaluations in a row that brought no lower one */
};

/* One warm-up: what --warmup NAME:LENGTH means. */
struct ls_warmup_kind {
    const char *name;
    bool in_steps; /* its length counts steps; false: epochs */
    bool has_base; /* it begins at a rate, s->base, which NAME:LENGTH:BASE may say */
    double (*lr)(const struct ls_schedule *s, int64_t step, int64_t epoch);
};

struct ls_schedule {
    const struct ls_schedule_kind *kind;
    const struct ls_warmup_kind *warmup; /* NULL: none */
    int64_t warmup_length;               /* epochs, or steps */
    double warmup_base;                  /* the rate it begins at; 0: not given */
    /* Arguments of schedules. */
    double factor; /* every, multistep, plateau: the rate is multiplied by it; exponential: factor of each epoch */
    double min;    /* cosine, polynomial, plateau */
    double power;  /* polynomial */
    int64_t every; /* every: epochs; exponential: steps, 0: it goes by epochs */
    int64_t patience;
    int64_t milestones[LS_SCHEDULE_MILESTONES]; /* rising */
    int n_milestones;
    /* Set by ls_schedule_scale. */
    double global, base;
    int64_t steps_per_epoch, total_steps;
    struct ls_schedule_memory memory; /* set it before the first step of a resumed run */
};

/* From --schedule and --warmup; LS_USAGE names the option and the forms it accepts. */
enum ls_status ls_schedule_parse(const char *schedule, const char *warmup, struct ls_schedule *s);
/* Whether the rates of that --schedule depend on the length of the run. */
bool ls_schedule_whole_run(const char *schedule);
/* Whether they depend on evaluations. */
bool ls_schedule_follows_evaluations(const char *schedule);
/* The run's size: lr as given, whether it is per 256 samples, samples of a step, replicas, steps. */
void ls_schedule_scale(struct ls_schedule *s, double lr, bool per_256, int64_t batch, int64_t replicas,
                       int64_t steps_per_epoch, int64_t total_steps);
double ls_schedule_lr(const struct ls_schedule *s, uint64_t step);
/* After ls_schedule_scale: refuses, with LS_USAGE, a warm-up that would begin above the full rate, and a least rate above it. */
enum ls_status ls_schedule_check(const struct ls_schedule *s);
/* Whether the warm-up begins at the full rate, so that it changes nothing. */
bool ls_schedule_is_flat(const struct ls_schedule *s);
/* Whether the run ends before the warm-up does. */
bool ls_schedule_only_warms(const struct ls_schedule *s);
bool ls_schedule_observes(const struct ls_schedule *s);
/* An evaluation after that many steps gave this loss. Evaluations of the warm-up are left out. */
void ls_schedule_observe(struct ls_schedule *s, uint64_t steps, double loss);

/* For the schedules: the steps of the warm-up. */
int64_t ls_schedule_warmup_steps(const struct ls_schedule *s);
/* For the parsers: each takes what it reads off the front of *text; false: it is not there. */
bool ls_take_char(const char **text, char c);
bool ls_take_count(const char **text, int64_t *value); /* 1 to 1e9 */
bool ls_take_number(const char **text, double low, double high, double *value);
/* ":FACTOR" at the end, or nothing. */
bool ls_take_factor(const char *text, double *factor);

#endif
