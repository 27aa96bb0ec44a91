/* Signals that stop a run: SIGINT, SIGTERM, SIGUSR1 (Slurm's --signal) and SIGHUP (unless it is ignored, as under nohup).
 * The first one is recorded, so that the run finishes its step and saves its state. A second one ends the process at once,
 * with two exceptions. A second SIGHUP is ignored, because the kernel and a shell may both send one. A signal within
 * LS_INTERRUPT_ECHO seconds of the first is ignored, because a batch system signals every process of a job step and a
 * launcher forwards the same signal again. */
#ifndef LS_BASE_INTERRUPT_H
#define LS_BASE_INTERRUPT_H

#define LS_INTERRUPT_ECHO 1.0 /* seconds */

/* Starts to record signals. Clears a signal recorded earlier. */
void ls_interrupt_watch(void);
/* Restores the default action of the signals. After a recorded signal the handlers stay: the process is about to end, and
 * a duplicate of the signal must not kill it first. */
void ls_interrupt_release(void);
/* Returns the recorded signal, or 0. */
int ls_interrupted(void);
/* Sets the file that is unlinked when a signal ends the process (before ls_interrupt_watch, or at the second signal).
 * NULL: none. The path is copied. */
void ls_interrupt_unlink(const char *file);

#endif
