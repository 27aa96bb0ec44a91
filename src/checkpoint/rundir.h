/* The run directory; ls_rundir_files lists its files. */
#ifndef LS_CHECKPOINT_RUNDIR_H
#define LS_CHECKPOINT_RUNDIR_H

#include "base/text/help.h"
#include "config/options.h"

/* The files of a run directory, for help. */
extern const struct ls_help_row ls_rundir_files[];

/* Finds the run to resume, from --resume with --run, or --resume RUN or CHECKPOINT. *run is the run directory; *checkpoint
 * is a folder, or NULL for the newest. Both are NULL for a new run. Free both with ls_free. The directory of --run may be
 * missing; a folder with other files than those of a run is an error. */
enum ls_status ls_rundir_resumed(const struct ls_options *o, char **run, char **checkpoint);
/* Checks that a new run may use --run. Call it before long preparations. */
enum ls_status ls_rundir_check(const struct ls_options *o);
/* Creates the directory of a new run without --run: the next free runs/MODEL-DATA-NNN. Free *run with ls_free. */
enum ls_status ls_rundir_make(const struct ls_options *o, char **run);
/* Tests for a run directory, with or without a checkpoint. */
bool ls_rundir_is_run(const char *folder);
/* Tests for a checkpoint folder (it has a state.json), valid or not. */
bool ls_rundir_is_checkpoint(const char *folder);
/* Removes temporary files of killed runs. The caller holds the run lock. */
void ls_rundir_remove_stale(const char *run);
bool ls_rundir_has_config(const char *folder);
/* Sets options that the user did not give from the config.yaml of a run or checkpoint, if it has one. */
enum ls_status ls_rundir_load_config(const char *run, struct ls_options *o);
/* Writes the effective configuration to config.yaml, without --run and --resume and with absolute paths, and the text of a
 * model file to model.yaml. */
enum ls_status ls_rundir_config(const char *run, const struct ls_options *o);
/* Writes the options that all processes of a run have alike as YAML, a model file as its name and checksum. Free *text with
 * free(). */
enum ls_status ls_rundir_common_options(const struct ls_options *o, char **text);
/* Describes the differences of two configurations in the options that determine the result of a run, not its placement, speed
 * or output: "--lr 0.1 is now 0.2, ...", or "". */
void ls_rundir_changes(const struct ls_options *was, const struct ls_options *is, char *text, size_t room);
/* Computes the checksum of these options. */
enum ls_status ls_rundir_digest(const struct ls_options *o, uint64_t *digest);

#endif
