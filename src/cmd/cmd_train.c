/* lockstep train: trains a model or resumes a run. */
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "launch/children/workers.h"
#include "cmd/world.h"
#include "checkpoint/model_snapshot.h"
#include "exec/dtype.h"
#include "train/logbook.h"
#include "checkpoint/rundir.h"
#include "train/trainer.h"

/* Loads the recorded configuration of a resumed run. Options on the command line override it. *resumed is the run, or NULL;
 * freed by ls_free. */
static enum ls_status load_run_config(struct ls_options *o, char **resumed)
{
    char *run, *checkpoint;
    bool model_given = ls_options_given(o, "model");
    LS_TRY(ls_rundir_resumed(o, &run, &checkpoint));
    /* A checkpoint that starts another run supplies its recorded configuration and model. */
    bool branch = run && checkpoint && !ls_rundir_has_config(run);
    enum ls_status st = run ? ls_rundir_load_config(branch ? checkpoint : run, o) : LS_OK;
    if (st == LS_OK && branch && !model_given)
        st = ls_model_snapshot_take(o, checkpoint);
    if (st == LS_OK)
        st = ls_model_snapshot_read(o, run);
    *resumed = run;
    ls_free(checkpoint);
    return st;
}

enum ls_status ls_cmd_train(struct ls_options *o)
{
    struct ls_trainer trainer;
    struct ls_world world;
    enum ls_status st;
    char *resumed = NULL;
    if (ls_workers_took_over(o, &st))
        return st;
    st = load_run_config(o, &resumed);
    if (st == LS_OK)
        st = ls_world_open(&world, o);
    if (st != LS_OK) {
        ls_free(resumed);
        return st;
    }
    trainer.all_know = true; /* rank 0 chooses, and all know if it fails */
    st = ls_dtype_settle(o, world.comm, resumed);
    ls_free(resumed);
    if (st == LS_OK)
        st = ls_trainer_open(&trainer, o, world.comm);
    if (st == LS_OK) {
        st = ls_trainer_run(&trainer);
        if (st != LS_PEER_LOST) /* threads may wait for a GPU that waits for the lost process; main ends them */
            ls_trainer_close(&trainer);
        else
            ls_run_lock_release(trainer.lock);
    }
    ls_world_close(&world, trainer.all_know ? LS_OK : st);
    ls_logbook_end(st);
    ls_log_close();
    return st;
}
