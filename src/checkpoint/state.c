#define _GNU_SOURCE
#include "checkpoint/state.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/files/checksum.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ls_help_row ls_state_keys[] = {
    {"version", "1"},
    {"step", "steps done"},
    {"epoch", "epochs done"},
    {"position", "samples of the current epoch already used"},
    {"epoch_so_far", "sums over the steps of the current epoch"},
    {"averaged",
     "with --ema: model.safetensors has the averages, state.safetensors the trained weights as NAME.trained"},
    {"goes_on", "with --epoch-size, an epoch begins where the one before it ended; older versions wrote no such key"},
    {"seed", "as --seed, hexadecimal"},
    {"batch", "as --batch; a resumed run must have the same batch, replicas and accumulate"},
    {"replicas", "as --replicas"},
    {"accumulate", "as --accumulate"},
    {"threads", "of each process; another number gives results that agree up to rounding"},
    {"identity", "what determines the bits besides the configuration: backend, threads, kernels, ..."},
    {"config", "checksum of the options that determine the result"},
    {"best_top1", "the highest accuracy of an evaluation so far; -1: none yet"},
    {"best_step", "the step after which it was measured"},
    {"best_top5", "the highest top-5 accuracy of an evaluation so far"},
    {"best_top5_step", "the step after which it was measured; 0: none yet"},
    {"jobs", "how many jobs have trained this run so far: --resume begins another one"},
    {"seconds", "of these jobs, up to this checkpoint, evaluations and checkpoints included"},
    {"checksums",
     "of all files of the checkpoint, for state.json with zeros in place of this checksum; a damaged checkpoint is not used"},
    {"verified", "all processes had the same weights when it was saved; --resume prefers such a checkpoint"},
    {"loss_scale", "with --dtype fp16: the loss scale of the next step"},
    {"evaluations",
     "the step of the last one as --eval-every says, the highest top-1 of those, and how many came since then"},
    {"end_due", "true: all steps are done, but the evaluation at the end was not made; --resume makes it up"},
    {"plateau", "with --schedule plateau: the rate, the lowest loss, and the evaluations since then"},
    {NULL, NULL},
};

#define SUM_DIGITS 16
#define SUM_KEY "\"state.json\": \""
/* The largest accepted count: sums and products of such counts fit into 64 bits. */
#define MAX_COUNT ((int64_t)1000000000000000)

/* A string, because many JSON readers store numbers as doubles. */
static json_t *hex(uint64_t value)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

static json_t *report_json(const struct ls_report *r)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "broken", (json_int_t)r->broken,
                     "steps", (json_int_t)r->step_in_epoch, "samples", (json_int_t)r->samples, "loss", r->loss, "top1",
                     r->top1, "top5", r->top5, "seconds", r->seconds, "input_seconds", r->input_seconds,
                     "compute_seconds", r->compute_seconds, "wait_seconds", r->wait_seconds, "update_seconds",
                     r->update_seconds);
}

/* Finds the 16 digits of the checksum of state.json in its text; NULL if there are none. */
static char *own_sum(const char *text, size_t size)
{
    char *key = memmem(text, size, SUM_KEY, strlen(SUM_KEY)), *digits = key ? key + strlen(SUM_KEY) : NULL;
    return digits && digits + SUM_DIGITS <= text + size ? digits : NULL;
}

/* Computes the checksum of the text with zeros in place of these digits. */
static uint64_t sum_without(const char *text, size_t size, const char *digits)
{
    static const char zeros[SUM_DIGITS + 1] = "0000000000000000";
    struct ls_checksum sum;
    const char *after = digits + SUM_DIGITS;
    ls_checksum_init(&sum);
    ls_checksum_add(&sum, text, (size_t)(digits - text));
    ls_checksum_add(&sum, zeros, SUM_DIGITS);
    ls_checksum_add(&sum, after, (size_t)(text + size - after));
    return ls_checksum_value(&sum);
}

static void put_own_sum(char *text)
{
    char *digits = own_sum(text, strlen(text)), value[SUM_DIGITS + 1];
    snprintf(value, sizeof value, "%016" PRIx64, sum_without(text, strlen(text), digits));
    memcpy(digits, value, SUM_DIGITS);
}

/* Adds the checksum of an optional file; 0: the checkpoint has no such file. */
static bool add_sum(json_t *state, const char *file, uint64_t sum)
{
    return sum == 0 || json_object_set_new(json_object_get(state, "checksums"), file, hex(sum)) == 0;
}

/* Adds what checkpoints of older versions lack. */
static bool add_totals(json_t *state, const struct ls_state *s)
{
    json_t *totals = json_pack("{s:f, s:I, s:I, s:f}", "best_top5", s->best_top5, "best_top5_step",
                               (json_int_t)s->best_top5_step, "jobs", (json_int_t)s->jobs, "seconds", s->seconds);
    bool added = totals && json_object_update(state, totals) == 0;
    json_decref(totals);
    return added;
}

/* Adds what only runs with certain options have. */
static bool add_optional(json_t *state, const struct ls_state *s)
{
    const struct ls_schedule_memory *m = &s->schedule;
    if ((s->goes_on && json_object_set_new(state, "goes_on", json_true()) != 0) ||
        (s->averaged && json_object_set_new(state, "averaged", json_true()) != 0) ||
        (s->end_due && json_object_set_new(state, "end_due", json_true()) != 0))
        return false;
    if (s->scale.scale > 0 &&
        json_object_set_new(state, "loss_scale",
                            json_pack("{s:f, s:i}", "scale", (double)s->scale.scale, "steady", s->scale.steady)) != 0)
        return false;
    if (s->evaluated > 0 && json_object_set_new(state, "evaluations",
                                                json_pack("{s:I, s:f, s:I}", "step", (json_int_t)s->evaluated, "top1",
                                                          s->followed_top1, "stale", (json_int_t)s->stale)) != 0)
        return false;
    return !m->any || json_object_set_new(state, "plateau",
                                          json_pack("{s:f, s:f, s:I}", "rate", m->rate, "best", m->best, "bad",
                                                    (json_int_t)m->bad)) == 0;
}

enum ls_status ls_state_write(const char *path, const struct ls_state *s)
{
    json_t *json = json_pack(
        "{s:i, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:f, s:I, s:b, s:{s:o, s:o, s:o}}", "version", 1,
        "step", (json_int_t)s->step, "epoch", (json_int_t)s->epoch, "position", (json_int_t)s->position, "epoch_so_far",
        report_json(&s->done), "seed", hex(s->seed), "batch", (json_int_t)s->batch, "replicas", (json_int_t)s->replicas,
        "accumulate", (json_int_t)s->accumulate, "threads", (json_int_t)s->threads, "config", hex(s->config),
        "best_top1", s->best_top1, "best_step", (json_int_t)s->best_step, "verified", s->verified, "checksums",
        "model.safetensors", hex(s->model_sum), "state.safetensors", hex(s->tensor_sum), "state.json", hex(0));
    if (json && (!add_totals(json, s) || !add_optional(json, s) || !add_sum(json, "config.yaml", s->config_sum) ||
                 !add_sum(json, "data.json", s->data_sum))) {
        json_decref(json);
        json = NULL;
    }
    if (json && *s->identity && json_object_set_new(json, "identity", json_string(s->identity)) != 0) {
        json_decref(json);
        json = NULL;
    }
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        put_own_sum(text);
    enum ls_status st = text ? ls_file_write(path, text, strlen(text)) : ls_fail(LS_FAILED, "%s: out of memory", path);
    free(text);
    json_decref(json);
    return st;
}

static bool read_hex(const json_t *object, const char *key, uint64_t *value)
{
    const char *text = json_string_value(json_object_get(object, key));
    char *end;
    if (!text || strlen(text) != SUM_DIGITS)
        return false;
    *value = strtoull(text, &end, 16);
    return !*end;
}

static bool read_count(const json_t *object, const char *key, int64_t *value)
{
    const json_t *number = json_object_get(object, key);
    *value = json_integer_value(number);
    return json_is_integer(number) && *value >= 0 && *value <= MAX_COUNT;
}

static bool read_step(const json_t *object, const char *key, uint64_t *value)
{
    int64_t count;
    bool good = read_count(object, key, &count);
    *value = (uint64_t)count;
    return good;
}

static bool read_real(const json_t *object, const char *key, double *value)
{
    const json_t *number = json_object_get(object, key);
    *value = json_number_value(number);
    return json_is_number(number);
}

static bool read_report(const json_t *o, struct ls_report *r)
{
    return read_count(o, "steps", &r->step_in_epoch) && read_count(o, "samples", &r->samples) &&
           read_real(o, "loss", &r->loss) && read_real(o, "top1", &r->top1) && read_real(o, "top5", &r->top5) &&
           read_real(o, "seconds", &r->seconds) && read_real(o, "input_seconds", &r->input_seconds) &&
           read_real(o, "compute_seconds", &r->compute_seconds) && read_real(o, "update_seconds", &r->update_seconds) &&
           (!json_object_get(o, "broken") || read_count(o, "broken", &r->broken)) &&
           (!json_object_get(o, "wait_seconds") || read_real(o, "wait_seconds", &r->wait_seconds));
}

/* Checkpoints of older versions have none of these keys. */
static bool read_totals(const json_t *o, struct ls_state *s)
{
    if (!json_object_get(o, "jobs"))
        return true;
    return read_real(o, "best_top5", &s->best_top5) && read_step(o, "best_top5_step", &s->best_top5_step) &&
           read_count(o, "jobs", &s->jobs) && read_real(o, "seconds", &s->seconds) && s->seconds >= 0;
}

/* Only fp16 runs have a loss scale. */
static bool read_scale(const json_t *o, struct ls_loss_scale *s)
{
    double scale;
    int64_t steady;
    if (!o)
        return true;
    if (!read_real(o, "scale", &scale) || !(scale >= 1 && scale <= 0x1p24) || !read_count(o, "steady", &steady) ||
        steady > INT32_MAX)
        return false;
    *s = (struct ls_loss_scale){.scale = (float)scale, .steady = (int)steady};
    return true;
}

/* Checkpoints of older versions, and those before the first evaluation, have none. */
static bool read_evaluations(const json_t *o, struct ls_state *s)
{
    s->followed_top1 = -1;
    return !o || (read_step(o, "step", &s->evaluated) && read_real(o, "top1", &s->followed_top1) &&
                  read_count(o, "stale", &s->stale));
}

/* Only runs with --schedule plateau have it. */
static bool read_plateau(const json_t *o, struct ls_schedule_memory *m)
{
    if (!o)
        return true;
    m->any = true;
    return read_real(o, "rate", &m->rate) && m->rate >= 0 && read_real(o, "best", &m->best) &&
           read_count(o, "bad", &m->bad);
}

/* Checkpoints of older versions have none. */
static bool read_identity(const json_t *text, struct ls_state *s)
{
    if (!text)
        return true;
    return json_is_string(text) &&
           snprintf(s->identity, sizeof s->identity, "%s", json_string_value(text)) < (int)sizeof s->identity;
}

/* Checkpoints of older versions have no such key. */
static bool read_flag(const json_t *o, const char *key, bool *flag)
{
    const json_t *value = json_object_get(o, key);
    *flag = json_is_true(value);
    return !value || json_is_boolean(value);
}

static bool read_optional_sum(const json_t *sums, const char *file, uint64_t *sum)
{
    return !json_object_get(sums, file) || read_hex(sums, file, sum);
}

static bool read_fields(const json_t *o, struct ls_state *s)
{
    const json_t *sums = json_object_get(o, "checksums");
    int64_t version;
    return read_count(o, "version", &version) && version == 1 && read_step(o, "step", &s->step) &&
           read_step(o, "epoch", &s->epoch) && read_count(o, "position", &s->position) &&
           read_report(json_object_get(o, "epoch_so_far"), &s->done) && read_hex(o, "seed", &s->seed) &&
           read_count(o, "batch", &s->batch) && read_count(o, "replicas", &s->replicas) &&
           read_count(o, "accumulate", &s->accumulate) && read_count(o, "threads", &s->threads) &&
           read_hex(o, "config", &s->config) && read_real(o, "best_top1", &s->best_top1) &&
           read_step(o, "best_step", &s->best_step) && read_hex(sums, "model.safetensors", &s->model_sum) &&
           read_hex(sums, "state.safetensors", &s->tensor_sum) &&
           read_optional_sum(sums, "config.yaml", &s->config_sum) &&
           read_optional_sum(sums, "data.json", &s->data_sum) &&
           read_scale(json_object_get(o, "loss_scale"), &s->scale) &&
           read_plateau(json_object_get(o, "plateau"), &s->schedule) &&
           read_evaluations(json_object_get(o, "evaluations"), s) && read_totals(o, s) &&
           read_identity(json_object_get(o, "identity"), s) && read_flag(o, "verified", &s->verified) &&
           read_flag(o, "goes_on", &s->goes_on) && read_flag(o, "averaged", &s->averaged) &&
           read_flag(o, "end_due", &s->end_due);
}

/* Checkpoints of older versions have no checksum of state.json, only those of two other files. */
static bool check_own_sum(const json_t *o, const char *text, size_t size, char *reason, size_t room)
{
    const json_t *sums = json_object_get(o, "checksums");
    const char *digits = own_sum(text, size);
    uint64_t recorded, found;
    if (json_object_size(sums) == 2 && !digits)
        return true;
    if (!digits || !read_hex(sums, "state.json", &recorded)) {
        snprintf(reason, room, "damaged: the checksum of state.json is missing or malformed");
        return false;
    }
    found = sum_without(text, size, digits);
    if (found != recorded)
        snprintf(reason, room, "damaged: its checksum is %016" PRIx64 ", recorded was %016" PRIx64, found, recorded);
    return found == recorded;
}

bool ls_state_parse(const char *text, size_t size, struct ls_state *s, char *reason, size_t room)
{
    json_error_t error;
    *s = (struct ls_state){0};
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        snprintf(reason, room, "line %d: not valid JSON: %s", error.line, error.text);
        return false;
    }
    bool whole = check_own_sum(json, text, size, reason, room), good = whole && read_fields(json, s);
    if (whole && !good)
        snprintf(reason, room, "not the state of a checkpoint: a field is missing or wrong");
    json_decref(json);
    return good;
}
