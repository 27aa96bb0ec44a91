/* lockstep train. */
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/workers.h"
#include "cmd/world.h"
#include "train/rundir.h"
#include "train/trainer.h"

/* A run that is gone on with brings its own configuration; what stands on the command line is stronger. */
static enum ls_status load_run_config(struct ls_options *o)
{
    char *run, *checkpoint;
    LS_TRY(ls_rundir_resumed(o, &run, &checkpoint));
    enum ls_status st = run ? ls_rundir_load_config(run, o) : LS_OK;
    ls_free(run);
    ls_free(checkpoint);
    return st;
}

enum ls_status ls_cmd_train(struct ls_options *o)
{
    struct ls_trainer trainer;
    struct ls_world world;
    bool parent;
    LS_TRY(ls_workers_wanted(o, &parent));
    if (parent)
        return ls_workers_run(o, o->n_command_line, o->command_line);
    LS_TRY(load_run_config(o));
    LS_TRY(ls_world_open(&world, o));
    enum ls_status st = ls_trainer_open(&trainer, o, world.comm);
    if (st == LS_OK) {
        st = ls_trainer_run(&trainer);
        ls_trainer_close(&trainer);
    }
    ls_world_close(&world, trainer.all_know ? LS_OK : st);
    ls_log_close();
    return st;
}
