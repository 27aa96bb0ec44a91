#include "cmd/report/findings/findings.h"

/* Remarks on single runs stop at this number of runs; a sweep's are about the whole. */
#define MANY_RUNS 8

/* Of the remarks on the files of many runs, keeps the first that are more than a note. */
static void keep_serious(struct ls_remarks *r, int from)
{
    int kept = from, left_out = 0;
    for (int i = from; i < r->n; i++) {
        if (r->list[i].kind == LS_REMARK_NOTE)
            continue;
        if (kept < from + MANY_RUNS)
            r->list[kept++] = r->list[i];
        else
            left_out++;
    }
    r->n = kept;
    if (left_out > 0)
        ls_remark(r, LS_REMARK_WARNING, NULL, "%d more remarks of this kind are left out.", left_out);
}

enum ls_status ls_findings_make(const struct ls_subject *s, struct ls_remarks *r)
{
    bool several = s->n_runs > 1, many = s->n_runs > MANY_RUNS || s->is_sweep;
    if (several)
        ls_findings_compare(s, r);
    for (int i = 0; i < s->n_runs && !many; i++)
        ls_findings_time(&s->runs[i], several ? s->runs[i].name : NULL, r);
    for (int i = 0; i < s->n_runs && !many; i++)
        ls_findings_learning(&s->runs[i], several ? s->runs[i].name : NULL, r);
    for (int i = 0; i < s->n_benches; i++)
        ls_findings_bench(&s->benches[i], r);
    int before = r->n;
    for (int i = 0; i < s->n_runs; i++)
        ls_findings_files(&s->runs[i], several ? s->runs[i].name : NULL, r);
    if (many)
        keep_serious(r, before);
    return r->status;
}
