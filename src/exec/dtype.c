#include "exec/dtype.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/table.h"
#include "exec/identity.h"

#include <stdio.h>
#include <string.h>

static const struct type {
    const char *name;
    enum ls_dtype activations;
    bool tf32;
} types[] = {
#define X(name, type, tf32) {#name, LS_##type, tf32},
#include "config/lists/dtypes.def"
};
enum { TYPES = sizeof types / sizeof *types, ROOM = 64 };

static const struct type *type_of(const struct ls_options *o)
{
    size_t i = TYPES - 1;
    while (i > 0 && strcmp(o->dtype, types[i].name) != 0)
        i--;
    return &types[i];
}

bool ls_dtype_tf32(const struct ls_options *o)
{
    return type_of(o)->tf32;
}

enum ls_dtype ls_dtype_activations(const struct ls_options *o)
{
    return type_of(o)->activations;
}

/* tf32 is no type of values but a way to multiply. */
static const char *refusal(const struct ls_backend *b, const struct type *t)
{
    return t->tf32 && !b->tf32 ? LS_GPU_DTYPES : b->refuses(t->activations);
}

enum ls_status ls_dtype_check(const struct ls_options *o, const struct ls_backend *b)
{
    const char *why_not = refusal(b, type_of(o));
    return why_not ? ls_fail(LS_USAGE, "--dtype %s: %s", o->dtype, why_not) : LS_OK;
}

/* --- auto -------------------------------------------------------------------------------------------------------- */

static bool is_auto(const char *text)
{
    return strncmp(text, "auto", 4) == 0 && (!text[4] || text[4] == ':');
}

/* Which types "auto:A+B" allows; a bit each. */
static enum ls_status parse(const char *text, unsigned *allowed)
{
    const char *at = text[4] ? text + 5 : "f32+bf16";
    *allowed = 0;
    for (bool more = true; more;) {
        size_t length = strcspn(at, "+"), i = 0;
        while (i < TYPES && (strlen(types[i].name) != length || strncmp(types[i].name, at, length) != 0))
            i++;
        if (i == TYPES)
            return ls_fail(LS_USAGE, "--dtype %s: '%.*s' is no type; auto may choose among %s", text, (int)length, at,
                           "f32, tf32, bf16 and fp16, such as auto:f32+bf16");
        *allowed |= 1u << i;
        more = at[length] == '+';
        at += length + 1;
    }
    return LS_OK;
}

static const struct type *allowed_type(unsigned allowed, const char *name)
{
    for (size_t i = 0; name && i < TYPES; i++)
        if ((allowed >> i & 1) && strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

static const struct type *choose(unsigned allowed, const struct ls_backend *b, const char **why)
{
    static const char *const order[] = {"bf16", "fp16", "tf32", "f32"};
    const struct type *other = NULL;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const struct type *t = allowed_type(allowed, order[i]);
        if (!t || refusal(b, t))
            continue;
        *why = b->faster ? b->faster(t->activations, t->tf32) : NULL;
        if (*why)
            return t;
        other = t; /* f32 is the last */
    }
    *why = "nothing else that is allowed is faster here";
    return other;
}

/* The type of a recorded plan, if it is allowed. */
static const struct type *recorded(unsigned allowed, const char *plan)
{
    char name[ROOM] = "";
    if (!plan || !ls_identity_plan_value(plan, "dtype", name, sizeof name))
        return NULL;
    return allowed_type(allowed, name);
}

static enum ls_status choose_here(const struct ls_options *o, const char *run, char name[ROOM])
{
    const struct ls_backend *b;
    unsigned allowed;
    const char *why = "as the run has it";
    LS_TRY(parse(o->dtype, &allowed));
    LS_TRY(ls_backend_open(o->backend, &b));
    const struct type *t = recorded(allowed, run);
    t = t ? t : recorded(allowed, o->plan);
    t = t ? t : recorded(allowed, o->config_run);
    if (!t)
        t = choose(allowed, b, &why);
    if (!t)
        return ls_fail(LS_USAGE, "--dtype %s: backend %s has none of these types: %s", o->dtype, b->name,
                       LS_GPU_DTYPES);
    if (!o->quiet)
        ls_progress("--dtype %s: %s, %s", o->dtype, t->name, why);
    snprintf(name, ROOM, "%s", t->name);
    return LS_OK;
}

enum ls_status ls_dtype_settle(struct ls_options *o, struct ls_comm *comm, const char *run)
{
    char name[ROOM] = "";
    enum ls_status st = LS_OK;
    bool several = comm && ls_comm_size(comm) > 1, root = !several || ls_comm_rank(comm) == 0;
    if (!is_auto(o->dtype) && strchr(o->dtype, ':'))
        st = ls_fail(LS_USAGE, "--dtype %s: only auto takes a list, such as auto:f32+bf16", o->dtype);
    else if (is_auto(o->dtype) && root)
        st = choose_here(o, run, name);
    /* Every rank takes part, whatever it was given: a difference is found where options are compared. */
    if (several && ls_comm_broadcast(comm, 0, name, sizeof name) != LS_OK)
        return LS_FAILED;
    if (st != LS_OK || !is_auto(o->dtype))
        return st;
    if (!*name) /* rank 0 has reported why */
        return LS_USAGE;
    return ls_option_set(o, ls_option_find("dtype"), "--dtype", name);
}
