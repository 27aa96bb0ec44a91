/* Being asked to stop: the first SIGINT, SIGTERM or SIGUSR1 (Slurm's --signal) is remembered so that the step
 * can be finished and the state saved; a second one ends the process at once. */
#ifndef LS_TRAIN_INTERRUPT_H
#define LS_TRAIN_INTERRUPT_H

/* From here on signals are caught; forgets an earlier one. */
void ls_interrupt_watch(void);
/* Signals act as usual again. */
void ls_interrupt_release(void);
/* The signal that came, 0: none. */
int ls_interrupted(void);

#endif
