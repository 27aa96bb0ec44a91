/* Which backend the tests hold against `ref` and PyTorch: onednn, or what LOCKSTEP_TEST_BACKEND names. */
#ifndef LS_TESTS_TESTED_H
#define LS_TESTS_TESTED_H

#include "backend/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

static inline const char *tested_name(void)
{
    const char *name = getenv("LOCKSTEP_TEST_BACKEND");
    return name && *name ? name : "onednn";
}

/* One that was asked for by name must be there. */
static inline const struct ls_backend *tested_backend(void)
{
    const struct ls_backend *b = ls_backend_find(tested_name());
    if (!b && getenv("LOCKSTEP_TEST_BACKEND"))
        fail_msg("LOCKSTEP_TEST_BACKEND=%s: this program was built without it", tested_name());
    if (!b)
        skip();
    b->refuses(LS_BF16); /* first of all, as the program does: AMX can be turned off only before anything is computed */
    return b;
}

#endif
