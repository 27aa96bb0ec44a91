/* Compares a backend with `ref`, case by case: every tensor that the nodes of a case write and that can be compared, forward
 * and backward. */
#ifndef LS_BACKEND_SELFTEST_SELFTEST_H
#define LS_BACKEND_SELFTEST_SELFTEST_H

#include "backend/selftest/case.h"
#include "backend/selftest/session.h"

/* A precision, with the relative error that it may have. */
struct ls_precision {
    const char *name; /* as --dtype spells it */
    enum ls_dtype dtype;
    bool tf32;
    double tolerance;
};
/* f32, tf32, bf16, fp16; ends with a NULL name. */
extern const struct ls_precision ls_precisions[];
/* NULL: none of that name. */
const struct ls_precision *ls_precision_find(const char *name);

/* A case as ref has computed it. */
struct ls_selftest {
    const struct ls_case *c;
    struct ls_session ref;
};

struct ls_selftest_result {
    double error, tolerance; /* the largest in proportion to what is allowed; INFINITY: a value is not finite */
    char tensor[96];         /* where */
};

/* Runs the case on ref. Close it, after a failure as well. */
enum ls_status ls_selftest_open(struct ls_selftest *t, const struct ls_case *c);
void ls_selftest_close(struct ls_selftest *t);
/* Runs the case on a backend. Fails only if the backend cannot run it; the caller judges the errors in *result. options NULL:
 * no memory is reused, and nothing is measured. */
enum ls_status ls_selftest_compare(const struct ls_selftest *t, const struct ls_backend *backend,
                                   const struct ls_precision *precision, const struct ls_backend_options *options,
                                   struct ls_selftest_result *result);

#endif
