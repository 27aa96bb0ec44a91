/* Being asked to stop: the first SIGINT, SIGTERM, SIGUSR1 (Slurm's --signal) or SIGHUP (the terminal is gone; unless it is
 * ignored, as by nohup) is remembered so that the step can be finished and the state saved; a second one, other than SIGHUP,
 * which the kernel and a shell may both send, ends the process at once. One that follows within a second is an
 * echo of the first and counts for nothing: a batch system signals every process of a step, and a parent or a launcher
 * among them passes its own on. */
#ifndef LS_BASE_INTERRUPT_H
#define LS_BASE_INTERRUPT_H

#define LS_INTERRUPT_ECHO 1.0 /* seconds */

/* From here on signals are caught; forgets an earlier one. */
void ls_interrupt_watch(void);
/* Signals act as usual again, unless one has come: its echo must not end a process that is about to end anyway. */
void ls_interrupt_release(void);
/* The signal that came, 0: none. */
int ls_interrupted(void);
/* A file that is to be removed where a signal ends the process, before signals are watched or at the second one; NULL:
 * none any more. */
void ls_interrupt_unlink(const char *file);

#endif
