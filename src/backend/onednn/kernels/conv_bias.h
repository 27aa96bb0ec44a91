/* The gradient of a convolution's bias, of maps in blocks of B channels of type E. */
#ifndef LS_KERNELS_CONV_BIAS_H
#define LS_KERNELS_CONV_BIAS_H

#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"

/* Called by all threads of a parallel region. */
static inline void bias_gradient(const struct ls_conv *w)
{
    int64_t area = w->out_h * w->out_w;
#pragma omp for schedule(static)
    for (int64_t m = 0; m < w->out_blocks; m++) {
        vf sum = vset(0.0f);
        for (int64_t n = 0; n < w->n; n++) {
            const E *dy = (const E *)w->out + (n * w->out_blocks + m) * area * B;
            vf part = vset(0.0f);
            for (int64_t i = 0; i < area; i++)
                part += load(dy + i * B);
            sum += part;
        }
        vstoref(w->bias + m * B, sum);
    }
}

#endif
