/* The first and the last lines of a run in log.txt: time, host, program, command and result. A resumed run writes
 * them again. */
#ifndef LS_TRAIN_LOGBOOK_H
#define LS_TRAIN_LOGBOOK_H

#include "train/trainer.h"

/* Called when log.txt is open and the engine is known. */
void ls_logbook_begin(const struct ls_trainer *t);
/* status is the exit code of the program. Does nothing when no log is open. */
void ls_logbook_end(enum ls_status status);

#endif
