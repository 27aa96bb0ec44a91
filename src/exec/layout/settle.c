/* --parallel as it was given becomes the layout of a run. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "exec/layout/layout.h"
#include "exec/pipeline/pipeline.h"
#include "exec/shards/shards.h"
#include "exec/split/split.h"
#include "report/formats/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A cut by measured times replaces the estimated one only where the busiest stage gains as much. */
#define GAIN 1.03

/* --- what is possible ------------------------------------------------------------------------------------------------ */

/* Finds out whether other options refuse the layout. */
static void try_layout(const struct ls_options *o, struct ls_comm *comm, const struct ls_backend *b,
                       struct ls_candidate *c)
{
    struct ls_engine e = {.comm = comm, .backend = b};
    struct ls_options with = *o;
    bool muted = ls_log_mute(true);
    with.parallel = c->text;
    enum ls_status st = ls_mesh_parse(c->text, ls_comm_size(comm), ls_comm_rank(comm), &e.mesh);
    if (st == LS_OK)
        st = ls_pipeline_new(&e, &with);
    if (st == LS_OK)
        st = ls_split_check(&with, &e);
    if (st == LS_OK)
        st = ls_shards_check(&with, b, ls_comm_size(comm));
    ls_pipeline_close(&e);
    ls_log_mute(muted);
    if (st == LS_OK)
        return;
    const char *said = ls_log_last(), *after = strstr(said, c->text);
    snprintf(c->why, sizeof c->why, "%s",
             after ? after + strlen(c->text) + strspn(after + strlen(c->text), ": ") : said);
}

/* Returns how many are possible. Where every process has the whole model, each that trains needs a replica. */
static int find_possible(const struct ls_options *o, struct ls_comm *comm, const struct ls_backend *b,
                         struct ls_candidate *list, int n)
{
    int possible = 0, size = ls_comm_size(comm), trainers = size - ls_sync_servers(o, size);
    for (int i = 0; i < n; i++) {
        if (list[i].stages == 0 && o->replicas < trainers)
            snprintf(list[i].why, sizeof list[i].why, "it needs %d replicas, and there %s %lld", trainers,
                     o->replicas == 1 ? "is" : "are", (long long)o->replicas);
        else if (i > 0)
            try_layout(o, comm, b, &list[i]);
        possible += !*list[i].why;
    }
    return possible;
}

/* --- for people ------------------------------------------------------------------------------------------------------- */

static void add_figure(struct ls_table *t, bool known, double value)
{
    if (known)
        ls_table_cell(t, "%.1f", value);
    else
        ls_table_cell(t, "%s", "");
}

static enum ls_status print_candidates(const struct ls_candidate *list, int n, int chosen, FILE *out)
{
    static const char *const heads[] = {"", "layout", "step ms", "work ms", "sends MiB", "memory MiB", ""};
    struct ls_table t;
    ls_table_init(&t, "llrrrrl", heads);
    for (int i = 0; i < n; i++) {
        const struct ls_candidate *c = &list[i];
        bool known = c->p.seconds > 0;
        ls_table_row(&t);
        ls_table_cell(&t, "%s", i == chosen ? "*" : "");
        ls_table_cell(&t, "%s", c->text);
        add_figure(&t, known, 1e3 * c->p.seconds);
        add_figure(&t, known, 1e3 * c->p.work);
        add_figure(&t, known, (double)c->p.sent / 1048576);
        add_figure(&t, known, (double)c->p.bytes / 1048576);
        ls_table_cell(&t, "%s", c->why);
    }
    enum ls_status st = ls_table_print(&t, out);
    ls_table_release(&t);
    return st;
}

static void print_reason(const struct ls_candidate *list, int n, int chosen, FILE *out)
{
    const struct ls_candidate *c = &list[chosen], *data = &list[0];
    int next = -1;
    for (int i = 0; i < n; i++)
        if (i != chosen && !*list[i].why && (next < 0 || list[i].p.seconds < list[next].p.seconds))
            next = i;
    fprintf(out, "auto: %s", c->text);
    if (*c->why && c->p.bytes == 0)
        fprintf(out, ", but no layout is possible here");
    else if (*c->why)
        fprintf(out, ", though %s: all others need more memory", c->why);
    else if (c->p.seconds == 0)
        fprintf(out, ", the only layout that is possible here");
    else if (next < 0)
        fprintf(out, ", the only layout that is possible here and fits");
    else if (chosen == 0 && data->p.seconds > list[next].p.seconds)
        fprintf(out, ", because %s would not be clearly faster", list[next].text);
    else if (chosen > 0 && !*data->why)
        fprintf(out, ", predicted to take %.2f of the time of data, which waits %.1f ms of a step and sends %.1f MiB%s",
                c->p.seconds / data->p.seconds, 1e3 * data->p.waits, (double)data->p.sent / 1048576,
                next > 0 && list[next].p.seconds < c->p.seconds
                    ? "; split layers take longer than predicted where processes share cores"
                    : "");
    else
        fprintf(out, ", predicted to take %.2f of the time of %s, the next best", c->p.seconds / list[next].p.seconds,
                list[next].text);
    fprintf(out, "\n");
}

static char *describe(const struct ls_candidate *list, int n, int chosen, const struct ls_measured *m)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    print_reason(list, n, chosen, out);
    print_candidates(list, n, chosen, out);
    if (m && *m->why)
        fprintf(out, "Nothing was measured: %s\n", m->why);
    else if (m)
        fprintf(out,
                "Measured: a pass %.1f ms, a sum %.2f ms and %.3g ms a MiB, a message %.2f ms and %.3g ms a MiB; %d "
                "processes on %.*f %s\n",
                1e3 * ls_layers_work(&m->layers, 0, m->layers.n, 1), 1e3 * m->prices.sum.alpha,
                1e3 * 1048576 * m->prices.sum.beta, 1e3 * m->prices.message.alpha,
                1e3 * 1048576 * m->prices.message.beta, m->prices.processes, m->prices.cards > 0 ? 0 : 1,
                m->prices.cores,
                m->prices.cards == 0   ? "cores' worth"
                : m->prices.cards == 1 ? "card"
                                       : "cards");
    char *copy = fclose(out) == 0 ? ls_strdup(text) : NULL;
    free(text);
    return copy;
}

/* --- stages ----------------------------------------------------------------------------------------------------------- */

/* The text of a layout, with the layers that its stages begin with. */
static char *with_cuts(const char *layout, const struct ls_layers *l, int stages, const int *cuts)
{
    char *names = ls_cut_names(l, stages, cuts), *text = names ? ls_format("%s@%s", layout, names) : NULL;
    ls_free(names);
    return text;
}

static void note_stages(const struct ls_layers *l, int stages, const int *cuts, struct ls_layout *layout)
{
    layout->stages = l->measured ? stages : 0;
    for (int s = 0; s < stages; s++)
        layout->ms[s] = 1e3 * ls_layers_work(l, cuts[s], s + 1 < stages ? cuts[s + 1] : l->n, 1);
}

/* Cuts a pipeline by what was measured; the estimated cut stays where that is as good. */
static enum ls_status cut(const struct ls_measured *m, const char *parallel, int stages, struct ls_layout *layout)
{
    enum ls_status st;
    if (!m->layers.measured) { /* the engine cuts, when it knows which layers the backend computes together */
        layout->parallel = ls_strdup(parallel);
        layout->report = ls_format("stages: cut by an estimate of their work: %s\n", m->why);
        return layout->parallel && layout->report ? LS_OK : LS_FAILED;
    }
    int cuts[LS_MOST_STAGES], estimated[LS_MOST_STAGES];
    struct ls_prediction now, before;
    struct ls_layers guess;
    struct ls_cut_rule rule = ls_predict_rule(&m->prices, stages);
    LS_TRY(ls_cut_evenly(&m->layers, &rule, cuts));
    LS_TRY(ls_layers_of(&m->whole, NULL, &guess));
    ls_layers_join(&guess, m->joined);
    st = ls_cut_evenly(&guess, &(struct ls_cut_rule){.stages = stages, .passes = 1}, estimated);
    ls_layers_release(&guess);
    LS_TRY(st);
    LS_TRY(ls_predict_stages(&m->layers, &m->prices, stages, cuts, &now));
    LS_TRY(ls_predict_stages(&m->layers, &m->prices, stages, estimated, &before));
    bool fits = m->prices.limit == 0 || before.bytes <= m->prices.limit;
    bool better = before.seconds > GAIN * now.seconds || !fits;
    note_stages(&m->layers, stages, better ? cuts : estimated, layout);
    layout->parallel = with_cuts(parallel, &m->layers, stages, better ? cuts : estimated);
    return layout->parallel ? LS_OK : LS_FAILED;
}

/* --- */

static enum ls_status choose(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size,
                             const char *plan, struct ls_layout *layout)
{
    enum ls_status st = LS_OK;
    struct ls_candidate *list = layout->list = ls_alloc(LS_MOST_CANDIDATES, sizeof *list);
    struct ls_measured m;
    const struct ls_backend *b;
    if (!list)
        return LS_FAILED;
    int n = layout->n = ls_candidates_list(ls_comm_size(comm), list), chosen = 0;
    LS_TRY(ls_backend_open(o->backend, &b));
    int possible = find_possible(o, comm, b, list, n);
    if (possible == 0 || (possible == 1 && !*list[0].why)) {
        layout->parallel = ls_strdup(list[chosen].text);
        layout->report = describe(list, n, chosen, NULL);
        return layout->parallel && layout->report ? LS_OK : LS_FAILED;
    }
    LS_TRY(ls_layout_measure(o, comm, size, plan, ls_comm_size(comm), &m));
    if (!*m.why) {
        bool muted = ls_log_mute(true);
        st = ls_candidates_predict(&m.layers, &m.prices, list, n);
        ls_log_mute(muted);
        chosen = layout->chosen = ls_candidates_choose(list, n, &m.prices);
    }
    if (st == LS_OK) {
        const struct ls_candidate *c = &list[chosen];
        layout->parallel = c->stages > 0 ? with_cuts(c->text, &m.layers, c->stages, c->p.cuts) : ls_strdup(c->text);
        layout->report = describe(list, n, chosen, &m);
        if (c->stages > 0)
            note_stages(&m.layers, c->stages, c->p.cuts, layout);
        st = layout->parallel && layout->report ? LS_OK : LS_FAILED;
    }
    ls_measured_release(&m);
    return st;
}

/* All ranks have computed the same from the same figures; that of rank 0 counts. */
static enum ls_status share(struct ls_comm *comm, struct ls_layout *layout)
{
    if (ls_comm_rank(comm) > 0) {
        ls_free(layout->parallel);
        layout->parallel = NULL;
    }
    return ls_engine_share_text(comm, &layout->parallel);
}

/* The stages of a pipeline that is to be cut; 0: there is none, or its cuts are named. */
static int stages_to_cut(const struct ls_mesh *mesh)
{
    const struct ls_mesh_axis *axis = &mesh->axes[LS_PARALLEL_PIPELINE];
    return axis->size > 1 && !axis->at ? axis->size : 0;
}

static enum ls_status settle(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size,
                             const char *plan, struct ls_layout *layout)
{
    struct ls_mesh mesh;
    struct ls_measured m;
    int processes = comm ? ls_comm_size(comm) : 1, stages;
    if (ls_mesh_is_auto(o->parallel)) {
        if (processes > 1) {
            LS_TRY(choose(o, comm, size, plan, layout));
            return share(comm, layout);
        }
        layout->parallel = ls_strdup("data");
        layout->report = ls_strdup("auto: data, because there is one process\n");
        return layout->parallel && layout->report ? LS_OK : LS_FAILED;
    }
    LS_TRY(ls_mesh_parse(o->parallel, processes, comm ? ls_comm_rank(comm) : 0, &mesh));
    stages = stages_to_cut(&mesh);
    if (stages == 0) {
        layout->parallel = ls_strdup(o->parallel);
        return layout->parallel ? LS_OK : LS_FAILED;
    }
    LS_TRY(ls_layout_measure(o, comm, size, plan, stages, &m));
    enum ls_status st = cut(&m, o->parallel, stages, layout);
    ls_measured_release(&m);
    return st == LS_OK ? share(comm, layout) : st;
}

enum ls_status ls_layout_settle(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size,
                                const char *plan, struct ls_layout *layout)
{
    *layout = (struct ls_layout){0};
    enum ls_status st = settle(o, comm, size, plan, layout);
    if (st != LS_OK)
        ls_layout_release(layout);
    return st;
}

enum ls_status ls_layout_plan(const struct ls_options *o, const struct ls_model_size *size, const char *plan,
                              struct ls_layout *layout)
{
    struct ls_mesh mesh;
    struct ls_measured m;
    *layout = (struct ls_layout){0};
    LS_TRY(ls_mesh_parse(o->parallel, ls_mesh_size(o->parallel), 0, &mesh));
    int stages = mesh.axes[LS_PARALLEL_PIPELINE].size;
    const struct ls_mesh_axis *axis = &mesh.axes[LS_PARALLEL_PIPELINE];
    LS_TRY(ls_layout_measure(o, NULL, size, plan, stages, &m));
    m.prices.processes = ls_mesh_size(o->parallel);
    enum ls_status st;
    if (axis->at) {
        int cuts[LS_MOST_STAGES];
        st = ls_cut_at(&m.layers, stages, axis->at, axis->at_length, cuts);
        if (st == LS_OK)
            note_stages(&m.layers, stages, cuts, layout);
        layout->parallel = ls_strdup(o->parallel);
        if (st == LS_OK && !layout->parallel)
            st = LS_FAILED;
    } else
        st = cut(&m, o->parallel, stages, layout);
    ls_measured_release(&m);
    if (st != LS_OK)
        ls_layout_release(layout);
    return st;
}

void ls_layout_release(struct ls_layout *layout)
{
    ls_free(layout->parallel);
    ls_free(layout->report);
    ls_free(layout->list);
    *layout = (struct ls_layout){0};
}
