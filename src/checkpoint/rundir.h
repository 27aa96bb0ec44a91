/* The run directory: ls_rundir_files. */
#ifndef LS_CHECKPOINT_RUNDIR_H
#define LS_CHECKPOINT_RUNDIR_H

#include "base/help.h"
#include "config/options.h"

/* What lies in a run directory. */
extern const struct ls_help_row ls_rundir_files[];

/* Is a run to be gone on with, and which? --resume with --run, or --resume RUN or CHECKPOINT. *run is the run
 * directory and *checkpoint a folder or NULL (the newest, if any); both NULL for a new run; freed by ls_free. The run of
 * --run need not be there yet; nothing is started in a folder that holds other things than a run's. */
enum ls_status ls_rundir_resumed(const struct ls_options *o, char **run, char **checkpoint);
/* May a new run use --run? Asked before long preparations. */
enum ls_status ls_rundir_check(const struct ls_options *o);
/* Make the directory of a new run that has no --run: the next free runs/MODEL-DATA-NNN. */
enum ls_status ls_rundir_make(const struct ls_options *o, char **run);
/* Is it a run directory, which need not have a checkpoint yet? */
bool ls_rundir_is_run(const char *folder);
/* Is it a checkpoint folder (with a state.json), which need not be a good one? */
bool ls_rundir_is_checkpoint(const char *folder);
/* Remove the files that runs were writing when they were killed. For the holder of the lock only. */
void ls_rundir_sweep(const char *run);
bool ls_rundir_has_config(const char *folder);
/* Options that nobody gave are set from the config.yaml of a run, or of a checkpoint, where it has one. */
enum ls_status ls_rundir_load_config(const char *run, struct ls_options *o);
/* Write down the effective configuration as config.yaml, without the options that name this run and with paths from the
 * root, and the text of a model's file as model.yaml. */
enum ls_status ls_rundir_config(const char *run, const struct ls_options *o);
/* The options that decide a run's result, as YAML: not where it runs, how fast, or what it prints. Freed by free. */
enum ls_status ls_rundir_meaning(const struct ls_options *o, char **text, size_t *size);
/* How two configurations differ in these, "" where they do not: "--lr 0.1 is now 0.2, ...". */
void ls_rundir_changes(const struct ls_options *was, const struct ls_options *is, char *text, size_t room);
/* Their checksum. */
enum ls_status ls_rundir_digest(const struct ls_options *o, uint64_t *digest);

#endif
