/* What decides the bits of a run besides its configuration: where the arithmetic is done, and in which order.
 *
 * An identity is a line of "key=value" words: backend, library, isa, dtype, threads (where they matter), replicas, passes,
 * plan (a digest of the kernels). It is printed when a run starts, and kept in its plan and its checkpoints. Runs of one
 * configuration and one identity end with the same bits. */
#ifndef LS_EXEC_IDENTITY_H
#define LS_EXEC_IDENTITY_H

#include "exec/engine.h"

#define LS_IDENTITY_ROOM 320

void ls_identity_make(const struct ls_options *o, const struct ls_engine *e, char text[LS_IDENTITY_ROOM]);
/* A short number for it. */
uint32_t ls_identity_number(const char *identity);
/* "backend onednn, threads 2, ..." */
void ls_identity_words(const char *identity, char *text, size_t room);
/* The value of a key; false: there is none. */
bool ls_identity_value(const char *identity, const char *key, char *value, size_t room);
/* "threads 2, now 4; ..."; "" where nothing differs, or one of them is empty. */
void ls_identity_difference(const char *was, const char *is, char *text, size_t room);
/* The same for what the machine decides: backend, library, instruction set and threads. */
void ls_identity_machine_difference(const char *was, const char *is, char *text, size_t room);

/* The lines of a plan: a file, or the plan.txt of a run directory. Freed by ls_free. */
enum ls_status ls_identity_load_plan(const char *path, char **lines);
/* The same, without a message: on failure *lines is NULL, and `why` has the text. */
enum ls_status ls_identity_try_plan(const char *path, char **lines, char *why, size_t room);
/* The identity that a plan begins with; "": none. */
void ls_identity_of_plan(const char *lines, char identity[LS_IDENTITY_ROOM]);
/* The lines of the plan that a run has recorded; NULL: there is none, or it is damaged, which is reported. run may be NULL.
 * Freed by ls_free. */
char *ls_identity_recorded_plan(const char *run);
/* A value of the identity in a plan (a run or its plan.txt); false: there is none, or the plan cannot be read, which is not
 * reported. */
bool ls_identity_plan_value(const char *path, const char *key, char *value, size_t room);
/* The number of threads that a plan is for; 0: it has none, or cannot be read, which is not reported. */
int ls_identity_plan_threads(const char *path);
/* Write the plan of an engine, with its identity. */
enum ls_status ls_identity_save_plan(const struct ls_engine *e, const char *identity, const char *path);

#endif
