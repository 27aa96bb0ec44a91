#include "base/log.h"
#include "cmd/bench/results/view.h"
#include "cmd/json.h"

enum ls_status ls_bench_write_json(const struct ls_bench_table *t, FILE *out)
{
    json_t *all = t->old ? json_copy(t->old) : json_object();
    json_object_set(all, "bench", t->about);
    json_object_set(all, "results", t->rows);
    int bad = ls_json_write(all, JSON_REAL_PRECISION(9), out) != 0 || putc('\n', out) == EOF;
    json_decref(all);
    return bad ? ls_fail(LS_FAILED, "the result cannot be written as JSON") : LS_OK;
}
