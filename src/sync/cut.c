#include "sync/sync.h"
#include "base/memory.h"

/* end[j] is the earliest time at which the sums of tensors 0 .. j-1 are complete. Their last bucket then begins at
 * tensor from[j]. */
enum ls_status ls_sync_cut(int n, const double *ready, const size_t *bytes, struct ls_cost cost, bool *last)
{
    double *end = ls_alloc((size_t)n + 1, sizeof *end);
    int *from = ls_alloc((size_t)n + 1, sizeof *from);
    enum ls_status st = end && from ? LS_OK : LS_FAILED;
    for (int j = 1; j <= n && st == LS_OK; j++) {
        size_t sum = 0;
        for (int i = j - 1; i >= 0; i--) {
            sum += bytes[i];
            double begin = end[i] > ready[j - 1] ? end[i] : ready[j - 1];
            double through = begin + cost.alpha + cost.beta * (double)sum;
            if (i == j - 1 || through < end[j]) {
                end[j] = through;
                from[j] = i;
            }
        }
    }
    for (int i = 0; i < n && st == LS_OK; i++)
        last[i] = false;
    for (int j = n; j > 0 && st == LS_OK; j = from[j])
        last[j - 1] = true;
    ls_free(end);
    ls_free(from);
    return st;
}
