/* lockstep run: starts the processes of a program that uses liblockstep, on this machine or as one node of several. */
#include "base/files/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "config/table.h"
#include "launch/children/children.h"
#include "launch/launch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* liblockstep reads these options from the environment of the program. The others say how the processes meet, which their
 * parent resolves for them. */
static enum ls_status pass_options(const struct ls_options *o)
{
    static const char *const names[] = {"deadline", "compress", "transport", "allow-unprotected-ucx"};
    char variable[64], room[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct ls_option *option = ls_option_find(names[i]);
        const char *value = ls_options_given(o, names[i]) ? ls_option_get(o, option, room) : NULL;
        int n = snprintf(variable, sizeof variable, "LOCKSTEP_%s", names[i]);
        for (int k = 0; k < n; k++)
            variable[k] = variable[k] == '-' ? '_' : (char)toupper((unsigned char)variable[k]);
        if (value && setenv(variable, value, 1) != 0)
            return ls_fail(LS_FAILED, "the environment of the program cannot be set");
    }
    return LS_OK;
}

static bool can_run(const char *path)
{
    return !ls_file_is_dir(path) && access(path, X_OK) == 0;
}

static bool is_in_path(const char *name)
{
    char file[4096];
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/bin:/usr/bin"; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        int n = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", n ? n : 1, n ? at : ".", name);
        if (can_run(file))
            return true;
    }
    return false;
}

/* Reports a program that cannot be started once, and not for each rank. */
static enum ls_status check_program(const char *name)
{
    bool slash = strchr(name, '/') != NULL;
    if (slash ? can_run(name) : is_in_path(name))
        return LS_OK;
    if (!slash && can_run(name))
        return ls_fail(LS_USAGE, "run: %s is not in PATH; for the file in this folder, type ./%s", name, name);
    return ls_fail(LS_USAGE, "run: %s: %s", name,
                   ls_file_exists(name) ? "this file cannot be run; is it a program, and executable?"
                                        : "there is no such program");
}

enum ls_status ls_cmd_run(struct ls_options *o)
{
    struct ls_launch launch;
    int code;
    if (o->n_args == 0)
        return ls_fail(LS_USAGE, "run: which program? Type: lockstep run -n 4 -- ./program");
    LS_TRY(check_program(o->args[0]));
    LS_TRY(ls_launch_detect(o, &launch));
    if (launch.kind == LS_LAUNCH_WORKERS) {
        ls_launch_release(&launch);
        return ls_fail(LS_USAGE, "run: this process is a worker already: LOCKSTEP_WORKER_RANK is set; unset it");
    }
    struct ls_children_job job = {.launch = &launch,
                                  .n = launch.workers > 0 ? launch.workers : 1,
                                  .program = o->args[0],
                                  .argv = o->args,
                                  .deadline = o->deadline,
                                  .foreign = true,
                                  .label = o->label};
    enum ls_status st = pass_options(o);
    if (st == LS_OK)
        st = ls_children_run(&job, &code);
    ls_launch_release(&launch);
    return st == LS_OK ? (enum ls_status)code : st;
}
