/* lockstep sweep: trains with every combination of lists of options. */
#include "cmd/cmd.h"
#include "cmd/sweep/sweep.h"
#include "base/log.h"

#include <stdio.h>
#include <unistd.h>

void ls_sweep_release(struct ls_sweep *s)
{
    if (s->journal >= 0)
        close(s->journal);
    ls_run_lock_release(s->lock);
    for (int i = 0; i < s->n_trials; i++)
        ls_outcome_close(&s->trials[i].tail);
    ls_free(s->trials);
    ls_free(s->folder);
    ls_arena_release(&s->strings);
    ls_options_release(&s->o);
    *s = (struct ls_sweep){.journal = -1};
}

/* The exit code: 0 if every trial has come to an end, and one of them to a good one. */
static enum ls_status verdict(const struct ls_sweep *s)
{
    int count[LS_TRIAL_STOPPED + 1] = {0};
    for (int i = 0; i < s->n_trials; i++)
        count[s->trials[i].state]++;
    if (count[LS_TRIAL_FAILED] > 0)
        return LS_FAILED;
    if (count[LS_TRIAL_PAUSED] > 0)
        return LS_INTERRUPTED;
    return count[LS_TRIAL_DIVERGED] == s->n_trials ? LS_DIVERGED : LS_OK;
}

static void print_how_to_continue(const struct ls_sweep *s, const char *text)
{
    char *words[] = {"lockstep", "sweep", s->folder};
    struct ls_options o = {.command_line = words, .n_command_line = 3};
    if (s->o.quiet)
        return;
    printf("%s: ", text);
    ls_options_command(&o, stdout); /* in quotes where a shell needs them */
    putchar('\n');
    fflush(stdout);
}

static enum ls_status finish(struct ls_sweep *s, enum ls_status run)
{
    struct ls_ranking r;
    LS_TRY(ls_sweep_rank(s, &r));
    enum ls_status st = ls_results_write(s, &r);
    if (st == LS_OK && run == LS_OK)
        st = ls_results_print(s, &r);
    ls_ranking_release(&r);
    LS_TRY(st);
    enum ls_status end = run == LS_OK ? verdict(s) : run;
    if (end == LS_INTERRUPTED)
        print_how_to_continue(s,
                              run == LS_OK ? "Some trials are paused. Go on with" : "Stopped, and saved. Go on with");
    if (end == LS_FAILED)
        print_how_to_continue(s, "To try the failed trials again");
    return end;
}

enum ls_status ls_cmd_sweep(struct ls_options *o)
{
    struct ls_sweep s;
    bool help;
    enum ls_status st = ls_sweep_read(&s, o->n_command_line - 2, o->command_line + 2, &help);
    if (st != LS_OK || help)
        goto release;
    LS_TRY_GOTO(release, ls_sweep_plan(&s));
    LS_TRY_GOTO(release, ls_sweep_open(&s, o->command_line));
    LS_TRY_GOTO(release, ls_journal_open(&s));
    LS_TRY_GOTO(release, ls_sweep_update(&s));
    st = ls_sweep_run(&s);
    if (st == LS_OK || st == LS_INTERRUPTED)
        st = finish(&s, st);
release:
    ls_sweep_release(&s);
    return st;
}
