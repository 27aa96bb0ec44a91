/* Jacobi's eigenvalue method: rotations that clear one pair of entries after the other, until all are small. */
#include "train/whiten.h"

#include <math.h>

enum { SWEEPS = 60 };

/* Rotates rows and columns p and q of a, so that a[p][q] becomes 0, and the vectors alike. */
static void rotate(int n, double *a, double *vectors, int p, int q)
{
    double apq = a[p * n + q];
    if (apq == 0)
        return;
    double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
    double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < n; k++) {
        double x = a[k * n + p], y = a[k * n + q];
        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {
        double x = a[p * n + k], y = a[q * n + k];
        a[p * n + k] = c * x - s * y;
        a[q * n + k] = s * x + c * y;
        x = vectors[p * n + k], y = vectors[q * n + k];
        vectors[p * n + k] = c * x - s * y;
        vectors[q * n + k] = s * x + c * y;
    }
}

/* Whether the entries above the diagonal are as good as 0. */
static bool is_diagonal(int n, const double *a)
{
    double off = 0, all = 0;
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            all += a[i * n + j] * a[i * n + j];
            off += j > i ? a[i * n + j] * a[i * n + j] : 0;
        }
    return off <= 1e-30 * all;
}

static void swap_rows(int n, double *values, double *vectors, int i, int j)
{
    double v = values[i];
    values[i] = values[j];
    values[j] = v;
    for (int k = 0; k < n; k++) {
        v = vectors[i * n + k];
        vectors[i * n + k] = vectors[j * n + k];
        vectors[j * n + k] = v;
    }
}

static void fix_sign(int n, double *vector)
{
    int largest = 0;
    for (int k = 1; k < n; k++)
        if (fabs(vector[k]) > fabs(vector[largest]) * (1 + 1e-9))
            largest = k;
    double sign = vector[largest] < 0 ? -1 : 1;
    for (int k = 0; k < n; k++)
        vector[k] *= sign;
}

void ls_eigen_symmetric(int n, double *a, double *values, double *vectors)
{
    for (int i = 0; i < n * n; i++)
        vectors[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < SWEEPS && !is_diagonal(n, a); sweep++)
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++)
                rotate(n, a, vectors, p, q);
    for (int i = 0; i < n; i++)
        values[i] = a[i * n + i];
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++)
            best = values[j] > values[best] ? j : best;
        swap_rows(n, values, vectors, i, best);
        fix_sign(n, vectors + i * n);
    }
}
