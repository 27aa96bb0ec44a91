/* Checkpoints of a run:
 *
 *   RUN/checkpoints/step-00001234/model.safetensors   weights, with the names of torchvision
 *                                 state.safetensors   optimizer state
 *                                 state.json          struct ls_state, with checksums of all files
 *                                 config.yaml         the configuration of the run at that time
 *                                 data.json           the fingerprint of the data (fingerprint.h)
 *   RUN/checkpoints/best -> step-00001200             the best evaluation so far
 *
 * Invariants (tests cite them):
 *  K1  A folder step-N is complete: it is written as step-N.tmp, fsynced and renamed.
 *  K2  Older checkpoints are removed only after the new one is durable: a crash at any moment leaves one to resume from.
 *  K3  A checkpoint with a wrong checksum, or with another step than its name, is never loaded; ls_checkpoint_find uses the
 *      next older one.
 *  K4  A resumed run computes the same bits as a run that was not interrupted.
 *  K5  A run has one history: a save removes checkpoints of later steps that are left from before a resume.
 *  K6  A checkpoint is saved only if all processes hold the same values. One that was not compared is not preferred.
 *  K7  A checkpoint that a reader holds (hold.h) is removed only for K5. */
#ifndef LS_CHECKPOINT_CHECKPOINT_H
#define LS_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/hold.h"
#include "checkpoint/model_card.h"
#include "exec/engine.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/state.h"
#include <pthread.h>

/* The files of a checkpoint, for help. */
extern const struct ls_help_row ls_checkpoint_files[];

/* An asynchronous save to run/checkpoints. With a device, begin returns once the weights are copied to the host, and a thread
 * writes them; without one, begin writes. Keeps the newest `keep` and the best; state.best_step == state.step makes this one
 * the best. A failure leaves the older checkpoints as they are. run, e and card must stay valid until finish. A writer
 * starts as {0} and runs one save at a time. */
struct ls_checkpoint_writer {
    bool on;
    pthread_t thread;
    const char *run;
    const struct ls_engine *e;
    const struct ls_model_card *card;
    struct ls_run_lock *lock; /* borrowed; NULL: none. A writer that lost the lock replaces and removes nothing */
    struct ls_state state;    /* with checksums after finish */
    int64_t keep;
    struct ls_weights_copy *model, *optimizer; /* owned */
    enum ls_status status;
};
enum ls_status ls_checkpoint_begin(struct ls_checkpoint_writer *w, const char *run, const struct ls_engine *e,
                                   const struct ls_model_card *card, struct ls_run_lock *lock,
                                   const struct ls_state *state, int64_t keep);
/* Waits for the save and returns its status, LS_OK if none was begun. */
enum ls_status ls_checkpoint_finish(struct ls_checkpoint_writer *w);

/* Removes incomplete checkpoints that a killed run left. The caller holds the run lock. */
void ls_checkpoint_remove_stale(const char *run);
/* Whether there are any. */
bool ls_checkpoint_has_stale(const char *run);
/* Whether `best` does not name the best checkpoint of *state, because the run was killed between the two, and make it do so. */
bool ls_checkpoint_best_lags(const char *run, const struct ls_state *state);
enum ls_status ls_checkpoint_mark_best(const char *run, const struct ls_state *state);

/* Tests whether the run has a checkpoint, valid or not. *state is the newest one's, unverified, or zero if it cannot be
 * read. Reports no error. */
bool ls_checkpoint_peek(const char *run, struct ls_state *state);
/* Finds the newest valid checkpoint whose values were compared among the processes (ls_state.verified), or else the newest
 * valid one. Warns about newer ones that it skips. LS_BAD_INPUT if there is none. Free *folder with ls_free. held: NULL, or
 * where the hold goes that keeps the checkpoint while its run goes on (hold.h). */
enum ls_status ls_checkpoint_find(const char *run, char **folder, struct ls_state *state, FILE **held);
/* Reads and verifies one checkpoint folder. */
enum ls_status ls_checkpoint_read(const char *folder, struct ls_state *state);
/* Loads weights and optimizer state from a verified folder. */
enum ls_status ls_checkpoint_load(const char *folder, struct ls_engine *e);

/* --- for the files of this folder ------------------------------------------------------------------------ */

enum { LS_CHECKPOINT_PATH = 4096 };
/* Writes FOLDER/NAME into room; "" if it is too long, which names no file. */
const char *ls_checkpoint_path(char room[LS_CHECKPOINT_PATH], const char *folder, const char *name);
/* Writes the name of the folder of a step, and `tail` behind it. */
const char *ls_checkpoint_step_name(char room[64], uint64_t step, const char *tail);
/* Lists the steps of all checkpoints in a folder, newest first; free *steps with ls_free. A missing folder has none. */
enum ls_status ls_checkpoint_steps(const char *folder, int64_t **steps, int *n);

#endif
