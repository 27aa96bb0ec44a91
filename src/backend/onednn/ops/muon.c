/* The update of muon (optim/muon.c). Filters lie in blocks; their matrix is gathered into plain rows, and oneDNN multiplies. */
#include "backend/onednn/updates.h"
#include "base/log.h"

#include <math.h>

enum { PARTS = 32 }; /* that sums are made of, on any number of threads */

/* The matrix of a node's filters, its shorter side first, and where its elements lie. */
struct matrix {
    float *w, *g, *m;        /* as stored */
    float *x, *y, *a, *b;    /* plain: x and y of rows x columns, a and b of rows x rows */
    int64_t *filter, *value; /* places of filter o < out, and of value i < in of a filter */
    int64_t out, in, rows, columns;
    bool turned; /* rows are the values of filters */
};

static struct matrix matrix_of(const struct ls_program *p, int node, char *scratch)
{
    const struct ls_shape *s = tensor_shape(p, p->core.g->nodes[node].in[0]);
    struct matrix m = {.out = s->dim[0], .in = s->dim[1] * s->dim[2] * s->dim[3]};
    m.turned = m.out > m.in;
    m.rows = m.turned ? m.in : m.out;
    m.columns = m.turned ? m.out : m.in;
    m.filter = (int64_t *)(void *)scratch;
    m.value = m.filter + m.out;
    m.x = (float *)(void *)(m.value + m.in);
    m.y = m.x + m.out * m.in;
    m.a = m.y + m.out * m.in;
    m.b = m.a + m.rows * m.rows;
    return m;
}

/* Filters in groups are stored as five dimensions: the groups of the layer that reads them. */
static int64_t groups_of(const struct ls_program *p, int node)
{
    const struct ls_graph *g = p->core.g;
    int param = g->nodes[node].in[0];
    for (int n = 0; n < node; n++)
        if (g->nodes[n].in[1] == param && g->nodes[n].attr.groups > 1)
            return g->nodes[n].attr.groups;
    return 1;
}

static enum ls_status prepare_muon(struct ls_program *p, int node)
{
    struct matrix m = matrix_of(p, node, NULL);
    LS_TRY(prepare_update(p, node));
    if (dnn_md_rank(&p->layouts[p->core.g->nodes[node].in[0]].md) < 4)
        return ls_fail(LS_FAILED, "--optimizer muon: the filters %s have a layout without places",
                       p->core.g->nodes[node].name);
    p->core.nodes[node].scratch_bytes =
        (size_t)(m.out + m.in) * sizeof *m.filter + (size_t)(m.out * m.in + m.rows * m.rows) * 2 * sizeof *m.x;
    return LS_OK;
}

/* Sets the places of filters and of their values. */
static void find_places(const struct dnn_md *md, const struct ls_shape *s, int64_t groups, const struct matrix *m)
{
    int rank = dnn_md_rank(md);
    int64_t each = s->dim[0] / groups, n = 0;
    for (int64_t o = 0; o < m->out; o++)
        m->filter[o] = (rank == 5 ? dnn_md_place(md, 0, o / each) : 0) + dnn_md_place(md, rank - 4, o % each);
    for (int64_t c = 0; c < s->dim[1]; c++) {
        int64_t of_channel = dnn_md_place(md, rank - 3, c);
        for (int64_t y = 0; y < s->dim[2]; y++) {
            int64_t of_row = of_channel + dnn_md_place(md, rank - 2, y);
            for (int64_t x = 0; x < s->dim[3]; x++)
                m->value[n++] = of_row + dnn_md_place(md, rank - 1, x);
        }
    }
}

/* Advances the momentum and gathers the update into x. Sets the squares of x and of the filters. */
static void gather(const struct matrix *m, float share, bool nesterov, double *of_x, double *of_w)
{
    double part_x[PARTS] = {0}, part_w[PARTS] = {0};
#pragma omp parallel for schedule(static) if (m->out * m->in > UPDATE_ALONE)
    for (int part = 0; part < PARTS; part++)
        for (int64_t o = m->out * part / PARTS; o < m->out * (part + 1) / PARTS; o++)
            for (int64_t i = 0; i < m->in; i++) {
                int64_t at = m->filter[o] + m->value[i];
                float g = m->g[at], momentum = share * m->m[at] + g, u = nesterov ? g + share * momentum : momentum;
                m->m[at] = momentum;
                m->x[m->turned ? i * m->out + o : o * m->in + i] = u;
                part_x[part] += (double)u * (double)u;
                part_w[part] += (double)m->w[at] * (double)m->w[at];
            }
    *of_x = *of_w = 0;
    for (int part = 0; part < PARTS; part++) {
        *of_x += part_x[part];
        *of_w += part_w[part];
    }
}

static dnnl_status_t multiply(char turn, int64_t columns, int64_t inner, const struct matrix *m, const float *a,
                              const float *b, float *c)
{
    return dnnl_sgemm('N', turn, m->rows, columns, inner, 1, a, inner, b, turn == 'T' ? inner : columns, 0, c, columns);
}

/* One iteration of Newton and Schulz on x. */
static enum ls_status iterate(const struct matrix *m)
{
    int64_t square = m->rows * m->rows, count = m->rows * m->columns;
    LS_TRY(dnn_check(multiply('T', m->rows, m->columns, m, m->x, m->x, m->a), "a product of matrices"));
    LS_TRY(dnn_check(multiply('N', m->rows, m->rows, m, m->a, m->a, m->b), "a product of matrices"));
    for (int64_t i = 0; i < square; i++)
        m->b[i] = -4.7750f * m->a[i] + 2.0315f * m->b[i];
    LS_TRY(dnn_check(multiply('N', m->columns, m->rows, m, m->b, m->x, m->y), "a product of matrices"));
#pragma omp parallel for simd schedule(static) if (count > UPDATE_ALONE)
    for (int64_t i = 0; i < count; i++)
        m->x[i] = 3.4445f * m->x[i] + m->y[i];
    return LS_OK;
}

static enum ls_status run_muon(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct dnn_md *md = &p->layouts[n->in[0]].md;
    const struct ls_shape *s = tensor_shape(p, n->in[0]);
    struct matrix m = matrix_of(p, node, p->core.nodes[node].scratch);
    m.w = update_slot(p, node, 0), m.g = update_slot(p, node, 1), m.m = update_slot(p, node, 2);
    double of_x, of_w;
    find_places(md, s, groups_of(p, node), &m);
    gather(&m, (float)n->attr.hyper.momentum, n->attr.nesterov, &of_x, &of_w);
    const float length = (float)(1 / (sqrt(of_x) + 1e-7)), rate = ls_hyper_lr(&n->attr.hyper, run->lr);
    const float keep = of_w > 0 ? (float)sqrt((double)m.out / of_w) : 1;
#pragma omp parallel for simd schedule(static) if (m.out * m.in > UPDATE_ALONE)
    for (int64_t i = 0; i < m.out * m.in; i++)
        m.x[i] *= length;
    for (int i = 0; i < (int)n->attr.hyper.muon_steps; i++)
        LS_TRY(iterate(&m));
#pragma omp parallel for schedule(static) if (m.out * m.in > UPDATE_ALONE)
    for (int64_t o = 0; o < m.out; o++)
        for (int64_t i = 0; i < m.in; i++) {
            int64_t at = m.filter[o] + m.value[i];
            m.w[at] = keep * m.w[at] - rate * m.x[m.turned ? i * m.out + o : o * m.in + i];
        }
    return LS_OK;
}

const struct kernel ls_onednn_ops_muon[] = {
    {"muon", prepare_muon, NULL, run_muon},
    {0},
};
