/* The update of muon (optim/muon.c). */
#include "backend/ref/ref.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* c (n x m) = a (n x k) times b (k x m), or b^T with b (m x k). */
static void multiply(int64_t n, int64_t m, int64_t k, const double *a, const double *b, bool turned, double *c)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * (turned ? b[j * k + l] : b[l * m + j]);
            c[i * m + j] = sum;
        }
}

/* x (rows x columns, rows <= columns) becomes orthogonal; a, b: rows x rows, y as x. */
static void iterate(int64_t rows, int64_t columns, double *x, double *a, double *b, double *y)
{
    multiply(rows, rows, columns, x, x, true, a);
    multiply(rows, rows, rows, a, a, false, b);
    for (int64_t i = 0; i < rows * rows; i++)
        b[i] = -4.7750 * a[i] + 2.0315 * b[i];
    multiply(rows, columns, rows, b, x, false, y);
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] = 3.4445 * x[i] + y[i];
}

static double length_of(const double *v, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += v[i] * v[i];
    return sqrt(squares);
}

static void muon(const struct ls_ref_call *call)
{
    const struct ls_attr *attr = &call->n->attr;
    struct ls_ref_view w = ls_ref_in(call, 0), grad = ls_ref_in(call, 1), m = ls_ref_in(call, 2);
    const double share = (float)attr->hyper.momentum, lr = ls_hyper_lr(&attr->hyper, call->run->lr);
    w.v = ls_ref_update_in(call, 0).v;
    int64_t count = ls_ref_count(&w), out = w.n, in = count / out;
    int64_t rows = out < in ? out : in, columns = out < in ? in : out;
    double *memory = ls_alloc((size_t)(2 * count + 2 * rows * rows), sizeof *memory);
    if (!memory)
        return; /* reported */
    double *x = memory, *y = x + count, *a = y + count, *b = a + rows * rows, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        double momentum = share * m.v[i] + grad.v[i];
        m.v[i] = (float)momentum;
        x[out <= in ? i : i % in * out + i / in] = attr->nesterov ? grad.v[i] + share * momentum : momentum;
        squares += (double)w.v[i] * w.v[i];
    }
    double length = length_of(x, count) + 1e-7, keep = squares > 0 ? sqrt((double)out / squares) : 1;
    for (int64_t i = 0; i < count; i++)
        x[i] /= length;
    for (int step = 0; step < (int)attr->hyper.muon_steps; step++)
        iterate(rows, columns, x, a, b, y);
    for (int64_t i = 0; i < count; i++)
        w.v[i] = (float)(keep * w.v[i] - lr * x[out <= in ? i : i % in * out + i / in]);
    ls_free(memory);
}

const struct ls_ref_op ls_ref_ops_muon[] = {
    {"muon", muon},
    {0},
};
