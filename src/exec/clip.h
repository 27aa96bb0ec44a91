/* The norm of all gradients (--clip-norm) where every process has a part of the model: stages, or rows of layers.
 *
 *   CLIP-1  The squares of a tensor, or of a chunk of its rows, are added by a process that has all of them. Every process adds
 *           these sums in the order of one process that has the whole model (backend/core/clip.h). So the norm has its bits. */
#ifndef LS_EXEC_CLIP_H
#define LS_EXEC_CLIP_H

#include "exec/engine.h"

/* Makes e->clip where gradients are clipped and this process holds a part of the model. All ranks call it, when programs have
 * their memory. */
enum ls_status ls_clip_open(struct ls_engine *e);
void ls_clip_close(struct ls_engine *e);
/* All ranks call it in a step, when their gradients are complete. *squares: the sum, valid until the next call; without e->clip
 * NULL. */
enum ls_status ls_clip_gather(struct ls_engine *e, const double **squares);

#endif
