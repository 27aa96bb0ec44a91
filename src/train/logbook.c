#define _GNU_SOURCE
#include "train/logbook.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef LS_VERSION
#define LS_VERSION "?"
#endif

/* Formats local time with its zone: "2026-03-01 13:34:56 +0100". */
static const char *date(char text[64])
{
    time_t now = time(NULL);
    struct tm local;
    text[0] = 0;
    if (localtime_r(&now, &local))
        strftime(text, 64, "%Y-%m-%d %H:%M:%S %z", &local);
    return text;
}

static void note_command(const struct ls_options *o)
{
    char *text = NULL;
    size_t size;
    FILE *out = o->command_line ? open_memstream(&text, &size) : NULL;
    if (!out)
        return;
    fputs("  command    ", out);
    ls_options_command(o, out);
    if (fclose(out) == 0)
        ls_log_write(LS_LOG_NOTE, text); /* a command line of any length */
    free(text);
}

void ls_logbook_begin(const struct ls_trainer *t)
{
    char when[64], host[256] = "?", folder[PATH_MAX];
    int processes = t->comm ? ls_comm_size(t->comm) : 1;
    gethostname(host, sizeof host - 1);
    date(when);
    if (t->resumed)
        ls_note("\nResumed %s after step %" PRIu64 ", on %s, by lockstep %s", when, t->state.step, host,
                t->o->version ? t->o->version : LS_VERSION);
    else
        ls_note("Started %s, on %s, by lockstep %s", when, host, t->o->version ? t->o->version : LS_VERSION);
    note_command(t->o);
    if (getcwd(folder, sizeof folder))
        ls_note("  folder     %s", folder);
    ls_note("  processes  %d with %d thread%s each, backend %s, pid %ld", processes, t->engine.threads,
            t->engine.threads == 1 ? "" : "s", t->engine.backend->name, (long)getpid());
}

void ls_logbook_end(enum ls_status status)
{
    char when[64];
    const char *how = "failed";
    switch (status) {
    case LS_OK:
        how = "done";
        break;
    case LS_FAILED:
        break;
    case LS_USAGE:
        how = "usage";
        break;
    case LS_BAD_INPUT:
        how = "bad input file";
        break;
    case LS_PEER_LOST:
        how = "another worker was lost";
        break;
    case LS_DIVERGED:
        how = "training diverged";
        break;
    case LS_INTERRUPTED:
        how = "stopped after saving";
        break;
    }
    ls_note("Ended %s with exit code %d: %s", date(when), (int)status, how);
}
