/* What an update must know of all gradients where every process has a part of the model, stages or rows of layers: their norm
 * (--clip-norm), and with fp16 whether one of them is not finite.
 *
 *   CLIP-1  The squares of a tensor, or of a chunk of its rows, are added by a process that has all of them. Every process adds
 *           these sums in the order of one process that has the whole model (backend/core/clip.h). So the norm has its bits.
 *   CLIP-2  An overflow that any process sees is one of all: no process updates anything in that step. */
#ifndef LS_EXEC_CLIP_H
#define LS_EXEC_CLIP_H

#include "exec/engine.h"

/* Makes e->clip where gradients are clipped or scaled, and this process holds a part of the model. All ranks call it, when
 * programs have their memory. */
enum ls_status ls_clip_open(struct ls_engine *e);
void ls_clip_close(struct ls_engine *e);
/* All ranks call it in a step, when their gradients are complete. Sets run->squares to the sum, which is valid until the next
 * call, and run->overflow. Does nothing without e->clip. */
enum ls_status ls_clip_gather(struct ls_engine *e, struct ls_run *run);

#endif
