/* The learning rate as a function of the step alone.
 *
 *   schedule                    learning rate after the warm-up
 *   constant                    global
 *   every:N[:F]                 global * F^(epoch / N), whole division; F is 0.1 unless told
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

enum ls_schedule_kind {
    LS_SCHEDULE_CONSTANT,
    LS_SCHEDULE_EVERY,
    LS_SCHEDULE_MULTISTEP,
    LS_SCHEDULE_EXPONENTIAL,
    LS_SCHEDULE_COSINE
};
enum ls_warmup_kind { LS_WARMUP_NONE, LS_WARMUP_STEPPING, LS_WARMUP_GRADUAL, LS_WARMUP_ITERATIONS };

struct ls_schedule {
    enum ls_schedule_kind kind;
    double factor; /* every, multistep: what the rate is multiplied by; exponential: each epoch's factor */
    double min;    /* cosine */
    int64_t every;
    int64_t milestones[LS_SCHEDULE_MILESTONES]; /* rising */
    int n_milestones;
    enum ls_warmup_kind warmup;
    int64_t warmup_length; /* epochs, or steps for iterations */
    /* set by ls_schedule_scale */
    double global, base;
    int64_t steps_per_epoch, total_steps;
};

/* From --schedule and --warmup; LS_USAGE names the option and the forms it accepts. */
enum ls_status ls_schedule_parse(const char *schedule, const char *warmup, struct ls_schedule *s);
/* The run's size: lr as given, whether it is per 256 samples, samples of a step, replicas, steps. */
void ls_schedule_scale(struct ls_schedule *s, double lr, bool per_256, int64_t batch, int64_t replicas,
                       int64_t steps_per_epoch, int64_t total_steps);
double ls_schedule_lr(const struct ls_schedule *s, uint64_t step);

#endif
