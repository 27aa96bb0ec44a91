/* Checkpoints of a run:
 *
 *   RUN/checkpoints/step-00001234/model.safetensors   weights, for any program that reads torchvision's names
 *                                 state.safetensors   state of the optimizer
 *                                 state.json          struct ls_state, with checksums of the three files
 *                                 config.yaml         the run's, as it was then
 *                                 data.json           what the data was (fingerprint.h)
 *   RUN/checkpoints/best -> step-00001200             the best evaluation so far
 *
 * Invariants (tests cite them):
 *  K1  A folder step-N is whole: it is written as step-N.tmp, synced, and renamed.
 *  K2  Other checkpoints go only after the new one is durable: a crash at any moment leaves one to go on from.
 *  K3  A checkpoint whose checksums do not fit, or whose step is not that of its name, is never loaded; ls_checkpoint_find takes the next older one.
 *  K4  Going on from a checkpoint gives the bits of the run that was not interrupted.
 *  K5  A run is one story: after a save no checkpoint of a later step is left from before a resume.
 *  K6  A checkpoint is saved only if all processes hold the same values; one that was not compared is not preferred. */
#ifndef LS_CHECKPOINT_CHECKPOINT_H
#define LS_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/model_card.h"
#include "exec/engine.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/state.h"
#include <pthread.h>

/* The files of a checkpoint. */
extern const struct ls_help_row ls_checkpoint_files[];

/* Save into run/checkpoints; state->best_step == state->step makes it the best. Keeps the newest `keep` and
 * the best. A failure leaves the checkpoints that were there. The state's checksums are set here. */
enum ls_status ls_checkpoint_save(const char *run, const struct ls_engine *e, const struct ls_model_card *card,
                                  struct ls_state *state, int64_t keep);

/* As save, but where weights come from a device, returns when they are on the host: a thread writes. `run`, `e` and `card`
 * must stay until finish. A writer is zeroed at first, and begins one at a time. */
struct ls_checkpoint_writer {
    bool on;
    pthread_t thread;
    const char *run;
    const struct ls_engine *e;
    const struct ls_model_card *card;
    struct ls_run_lock *lock; /* borrowed; nothing is put in place, or removed, once it is lost; NULL: there is none */
    struct ls_state state;    /* with its checksums, when it is finished */
    int64_t keep;
    struct ls_weights_copy *model, *optimizer; /* owned */
    enum ls_status status;
};
enum ls_status ls_checkpoint_begin(struct ls_checkpoint_writer *w, const char *run, const struct ls_engine *e,
                                   const struct ls_model_card *card, struct ls_run_lock *lock,
                                   const struct ls_state *state, int64_t keep);
/* Wait for what was begun; what became of it, LS_OK where nothing was. */
enum ls_status ls_checkpoint_finish(struct ls_checkpoint_writer *w);

/* Remove what a run that was killed left half written in run/checkpoints. For the process that holds the lock. */
void ls_checkpoint_clean(const char *run);

/* Is there any, good or not? Where the newest one stands, unverified; zero where it cannot be read. Says nothing. */
bool ls_checkpoint_peek(const char *run, struct ls_state *state);
/* The newest valid checkpoint of the run directory that is verified (state.h), else the newest valid one; newer ones that
 * are passed over are named in a warning. LS_BAD_INPUT
 * when there is none. *folder is freed by ls_free. */
enum ls_status ls_checkpoint_find(const char *run, char **folder, struct ls_state *state);
/* One checkpoint folder: read and verify. */
enum ls_status ls_checkpoint_read(const char *folder, struct ls_state *state);
/* Weights and optimizer state of a verified folder into the engine. */
enum ls_status ls_checkpoint_load(const char *folder, struct ls_engine *e);

#endif
