#define _GNU_SOURCE
#include "base/log.h"
#include "cmd/doctor/doctor.h"

#include <math.h>
#include <string.h>

enum { GIVE_UP = 8 /* cases in a row that cannot even be run */ };

/* --- tests -------------------------------------------------------------------------------------------------------- */

static bool can(const struct ls_backend *b, const struct ls_precision *p)
{
    return !b->refuses(p->dtype) && (!p->tf32 || b->tf32);
}

/* The row of an op and a precision, added if it is new. NULL: out of memory. */
static struct ls_op_health *row_of(struct ls_ops *ops, const char *op, const struct ls_precision *p)
{
    for (int i = 0; i < ops->n; i++)
        if (ops->list[i].op == op && ops->list[i].precision == p)
            return &ops->list[i];
    if (ops->n == ops->room) {
        int room = ops->room ? 2 * ops->room : 64;
        struct ls_op_health *list = ls_realloc(ops->list, (size_t)ops->room, (size_t)room, sizeof *list);
        if (!list)
            return NULL;
        ops->list = list;
        ops->room = room;
    }
    ops->list[ops->n] = (struct ls_op_health){.op = op, .precision = p, .tolerance = p->tolerance};
    return &ops->list[ops->n++];
}

/* Keeps the case whose error is largest in proportion to the error allowed. */
static void take_result(struct ls_op_health *row, const struct ls_case *c, const struct ls_selftest_result *r)
{
    row->cases++;
    if (row->worst && !(r->error / r->tolerance > row->error / row->tolerance))
        return;
    row->worst = c->name;
    row->error = r->error;
    row->tolerance = r->tolerance;
    memcpy(row->tensor, r->tensor, sizeof row->tensor);
}

static enum ls_status try_case(struct ls_ops *ops, const struct ls_backend *b, const struct ls_case *c, int *unfit)
{
    enum ls_status st;
    struct ls_selftest t;
    LS_TRY_GOTO(close_selftest, ls_selftest_open(&t, c));
    for (const struct ls_precision *p = ls_precisions; p->name && st == LS_OK; p++) {
        if (!can(b, p))
            continue;
        struct ls_op_health *row = row_of(ops, c->op->name, p);
        struct ls_selftest_result r;
        if (!row) {
            st = LS_FAILED;
        } else if (ls_selftest_compare(&t, b, p, NULL, &r) == LS_OK) {
            take_result(row, c, &r);
            *unfit = 0;
        } else {
            row->cases++;
            row->failed = row->failed ? row->failed : c->name;
            ls_log_last_copy(row->why, sizeof row->why);
            ++*unfit;
        }
    }
close_selftest:
    ls_selftest_close(&t);
    return st;
}

enum ls_status ls_ops_examine(struct ls_ops *ops, const struct ls_backend *b, bool large, struct ls_console *console)
{
    enum ls_status st = LS_OK;
    int unfit = 0, total = 0;
    while (ls_case_at(total))
        total++;
    ls_log_mute(1);
    for (int i = 0; i < total && st == LS_OK && unfit < GIVE_UP; i++) {
        const struct ls_case *c = ls_case_at(i);
        if (c->large && !large)
            continue;
        ls_console_progress(console, "testing the ops against ref", i, total);
        st = try_case(ops, b, c, &unfit);
    }
    ls_log_mute(0);
    ops->gave_up = unfit >= GIVE_UP;
    return st;
}

void ls_ops_release(struct ls_ops *ops)
{
    ls_free(ops->list);
    *ops = (struct ls_ops){0};
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static bool is_well(const struct ls_op_health *o)
{
    return !o->failed && o->error <= o->tolerance;
}

void ls_check_ops(struct ls_findings *f, const struct ls_ops *ops)
{
    for (int i = 0; i < ops->n; i++) {
        const struct ls_op_health *o = &ops->list[i];
        const char *precision = o->precision->name;
        if (is_well(o)) {
            ls_find(f, LS_HEALTH_OK, o->op, "", "%s: relative error %.1e at most, %d case%s", precision, o->error,
                    o->cases, o->cases == 1 ? "" : "s");
            continue;
        }
        if (o->failed)
            ls_find(f, LS_HEALTH_ERROR, o->op, "", "%s: case \"%s\" cannot be run: %s", precision, o->failed, o->why);
        else if (isinf(o->error))
            ls_find(f, LS_HEALTH_ERROR, o->op, "", "%s: case \"%s\": %s has values that are not finite", precision,
                    o->worst, o->tensor);
        else
            ls_find(f, LS_HEALTH_ERROR, o->op, "", "%s: case \"%s\": %s has a relative error of %.1e; %.0e is allowed",
                    precision, o->worst, o->tensor, o->error, o->tolerance);
        ls_advise(
            f,
            "Do not train with --dtype %s on this card: take another, or --backend onednn. Try a newer driver, and "
            "report what --json prints.",
            precision);
    }
    if (ops->gave_up) {
        ls_find(f, LS_HEALTH_ERROR, "self-test", "", "given up: nothing runs on the card any more");
        ls_advise(f, "See what the system's log (dmesg) and nvidia-smi say of the card.");
    }
}

json_t *ls_ops_json(const struct ls_ops *ops)
{
    json_t *list = json_array();
    for (int i = 0; i < ops->n; i++) {
        const struct ls_op_health *o = &ops->list[i];
        json_t *error = isfinite(o->error) ? json_real(o->error) : json_null();
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:i, s:o, s:f, s:s?, s:s, s:s?, s:s}", "op", o->op,
                                              "dtype", o->precision->name, "ok", is_well(o), "cases", o->cases, "error",
                                              error, "tolerance", o->tolerance, "worst", o->worst, "tensor", o->tensor,
                                              "failed", o->failed, "why", o->why));
    }
    return list;
}
