#define _GNU_SOURCE
#include "launch/children/workers.h"
#include "base/system/program.h"
#include "base/log.h"
#include "launch/children/children.h"
#include "launch/launch.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Starts copies of this program with its own command line. */
static enum ls_status run_workers(const struct ls_options *o, const struct ls_launch *launch)
{
    char room[4096];
    int code;
    const char *self = ls_program_path(room, sizeof room);
    if (!self)
        return ls_fail(LS_FAILED, "/proc/self/exe: the path of the program cannot be read: %s", strerror(errno));
    struct ls_children_job job = {
        .launch = launch, .n = launch->workers, .program = self, .argv = o->command_line, .deadline = o->deadline};
    LS_TRY(ls_children_run(&job, &code));
    return (enum ls_status)code;
}

bool ls_workers_took_over(const struct ls_options *o, enum ls_status *status)
{
    struct ls_launch launch;
    *status = LS_OK;
    if (!ls_launch_may_start_workers(o))
        return false;
    *status = ls_launch_detect(o, &launch);
    if (*status != LS_OK)
        return true;
    bool parent = launch.workers > 0;
    if (parent)
        *status = run_workers(o, &launch);
    ls_launch_release(&launch);
    return parent;
}
