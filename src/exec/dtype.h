/* The types of --dtype, and the choice among them that `--dtype auto` leaves to the program.
 *
 * auto allows f32 and bf16; auto:f32+tf32+bf16 allows what it lists. The choice changes bits, so it is not measured but follows
 * from a rule of the backend: the first of bf16, fp16, tf32 that is allowed and faster than f32 on this machine, else f32. It
 * replaces the option's value before anything else reads it, so that a run's config.yaml and plan.txt record the type. */
#ifndef LS_EXEC_DTYPE_H
#define LS_EXEC_DTYPE_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "config/options.h"

/* The type of activations, and whether f32 values are multiplied in tf32. */
enum ls_dtype ls_dtype_activations(const struct ls_options *o);
bool ls_dtype_tf32(const struct ls_options *o);
/* Reports a type that the backend does not have. */
enum ls_status ls_dtype_check(const struct ls_options *o, const struct ls_backend *b);

/* Replaces auto by a type and prints which and why. run: the run that goes on, a folder with a plan.txt, or NULL; its type, or
 * that of --plan, or of the run whose config.yaml was given, is taken if it is allowed. Rank 0 chooses for all; every rank of
 * comm calls this. comm NULL: one process. */
enum ls_status ls_dtype_settle(struct ls_options *o, struct ls_comm *comm, const char *run);

#endif
