/* results.csv and results.json. */
#include "cmd/sweep/sweep.h"
#include "report/formats/csv.h"
#include "base/files/file.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- CSV (RFC 4180, with \n) -------------------------------------------------------------------------------------- */

static void put_csv_row(FILE *out, const struct ls_sweep *s, const struct ls_trial *t)
{
    json_t *result = ls_outcome_json(&t->outcome);
    const char *key;
    json_t *value;
    fprintf(out, "%d,%d,", t->rank, t->number);
    ls_csv_put(t->name, out);
    fprintf(out, ",%s", ls_trial_state_name(t->state));
    for (int a = 0; a < s->n_axes; a++) {
        putc(',', out);
        ls_csv_put(t->values[a], out);
    }
    json_object_foreach(result, key, value)
    {
        putc(',', out);
        if (json_is_integer(value))
            fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else if (json_is_real(value))
            fprintf(out, "%.15g", json_real_value(value));
    }
    putc(',', out);
    ls_csv_put(t->error, out);
    putc('\n', out);
    json_decref(result);
}

static void put_csv(FILE *out, const struct ls_sweep *s, const struct ls_ranking *r)
{
    struct ls_outcome none;
    ls_outcome_clear(&none);
    json_t *result = ls_outcome_json(&none), *value;
    const char *key;
    fputs("rank,trial,name,state", out);
    for (int a = 0; a < s->n_axes; a++)
        fprintf(out, ",%s", s->axes[a].option->name);
    json_object_foreach(result, key, value) fprintf(out, ",%s", key);
    fputs(",error\n", out);
    json_decref(result);
    for (int i = 0; i < s->n_trials; i++)
        put_csv_row(out, s, r->order[i]);
}

/* --- JSON ------------------------------------------------------------------------------------------------------------ */

static json_t *trial_json(const struct ls_sweep *s, const struct ls_trial *t)
{
    json_t *trial = json_pack("{s:i, s:i, s:s, s:s, s:o, s:o}", "rank", t->rank, "trial", t->number, "name", t->name,
                              "state", ls_trial_state_name(t->state), "options", ls_trial_options_json(s, t), "result",
                              ls_outcome_json(&t->outcome));
    if (*t->error)
        json_object_set_new(trial, "error", ls_json_text(t->error));
    return trial;
}

static json_t *figure_json(const struct ls_group_figure *f)
{
    return json_pack("{s:o, s:o}", "mean", ls_json_real(f->mean), "deviation", ls_json_real(f->deviation));
}

static json_t *group_json(const struct ls_sweep *s, const struct ls_group *g)
{
    json_t *options = ls_trial_options_json(s, g->first);
    json_object_del(options, "seed");
    return json_pack("{s:o, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "options", options, "trials", g->trials, "done",
                     g->done, "reached_target", g->reached, "final_loss", figure_json(&g->loss), "loss_area",
                     figure_json(&g->area), "top1", figure_json(&g->top1), "seconds", figure_json(&g->seconds),
                     "time_to_target", figure_json(&g->target));
}

static json_t *command_json(const struct ls_sweep *s, const struct ls_trial *t)
{
    struct ls_arena arena = {0};
    json_t *words = json_array();
    char **command = ls_trial_command(s, t, false, &arena);
    for (int i = 0; command && command[i]; i++)
        json_array_append_new(words, ls_json_text(command[i]));
    ls_arena_release(&arena);
    return words;
}

static json_t *results_json(const struct ls_sweep *s, const struct ls_ranking *r)
{
    json_t *trials = json_array(), *groups = json_array();
    const struct ls_trial *best = r->order[0];
    for (int i = 0; i < s->n_trials; i++)
        json_array_append_new(trials, trial_json(s, r->order[i]));
    for (int i = 0; i < r->n_groups; i++)
        json_array_append_new(groups, group_json(s, &r->groups[i]));
    json_t *out = json_pack("{s:s, s:o, s:o, s:o}", "rank_by", ls_rank_by_option(s->rank_by), "target",
                            s->o.target ? ls_json_text(s->o.target) : json_null(), "trials", trials, "groups", groups);
    if (best->state == LS_TRIAL_DONE)
        json_object_set_new(
            out, "best",
            json_pack("{s:i, s:s, s:o}", "trial", best->number, "name", best->name, "command", command_json(s, best)));
    return out;
}

enum ls_status ls_results_write(const struct ls_sweep *s, const struct ls_ranking *r)
{
    struct ls_arena strings = {0};
    char *csv_path = ls_sweep_path(s, &strings, "results.csv", NULL), *csv = NULL, *text = NULL;
    char *json_path = ls_sweep_path(s, &strings, "results.json", NULL);
    size_t size = 0;
    FILE *out = csv_path && json_path ? open_memstream(&csv, &size) : NULL;
    json_t *json = out ? results_json(s, r) : NULL;
    enum ls_status st = json ? LS_OK : LS_FAILED;
    if (out) {
        put_csv(out, s, r);
        fclose(out);
    }
    text = json ? json_dumps(json, JSON_REAL_PRECISION(15) | JSON_INDENT(1)) : NULL;
    if (st == LS_OK)
        st = text ? ls_file_write(csv_path, csv, size) : ls_fail(LS_FAILED, "out of memory");
    if (st == LS_OK)
        st = ls_file_write(json_path, text, strlen(text));
    free(csv);
    free(text);
    json_decref(json);
    ls_arena_release(&strings);
    return st;
}
