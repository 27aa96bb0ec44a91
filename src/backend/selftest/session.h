/* A graph on a backend, ready to run. Parameters and inputs depend only on names and positions, so two sessions with the same
 * layers start with the same values on any backend. */
#ifndef LS_BACKEND_SELFTEST_SESSION_H
#define LS_BACKEND_SELFTEST_SESSION_H

#include "backend/backend.h"

struct ls_session {
    const struct ls_backend *backend;
    struct ls_graph g; /* owned */
    struct ls_store *store;
    bool own_store;
    struct ls_program *program; /* owned */
    void *arena, *grads;        /* owned; the backend's memory */
    size_t arena_bytes, grad_bytes;
    float *images;   /* owned */
    int32_t *labels; /* owned */
    struct ls_run run;
};

/* s is zero but for g, which is made; prepare, bind and fill. With s->store set the parameters are those of another
 * session. After a failure, too, it is to be closed. */
enum ls_status ls_session_open(struct ls_session *s, const struct ls_backend *backend, int64_t valid,
                               const struct ls_backend_options *options);
void ls_session_close(struct ls_session *s);
/* All nodes, on the inputs as they are now. */
enum ls_status ls_session_run(struct ls_session *s);
/* New memory with the tensor's values, always as f32. */
enum ls_status ls_session_read(const struct ls_session *s, int tensor, float **values);

int64_t ls_session_count(const struct ls_session *s, int tensor);
/* |a - b| / |a|, or |a - b| when a is all zero. What is not finite counts as infinitely wrong. */
double ls_relative_error(const float *a, const float *b, int64_t n);

#endif
