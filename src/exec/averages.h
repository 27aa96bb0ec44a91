/* Averages of the weights over steps (--ema). While training, the store holds the trained weights, and the optimizer's state
 * their averages. An evaluation and a checkpoint see them swapped: the averages are the model. Without --ema these functions
 * do nothing. */
#ifndef LS_EXEC_AVERAGES_H
#define LS_EXEC_AVERAGES_H

#include "exec/engine.h"

/* Averages begin as the weights. */
enum ls_status ls_averages_begin(struct ls_engine *e);
/* Swaps every weight with its average. Twice changes nothing. */
enum ls_status ls_averages_swap(struct ls_engine *e);
/* *name is the first value with an average that is not finite; NULL: there is none. All ranks call it where each holds a part
 * of the model. */
enum ls_status ls_averages_check(struct ls_engine *e, const char **name);

#endif
