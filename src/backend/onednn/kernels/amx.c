/* Convolutions by AMX: amx_data.c and amx_weights.c, and amx_samples.c for small maps. */
#include "backend/onednn/kernels/amx.h"

#ifdef LS_AMX

static size_t scratch(const struct ls_conv *w)
{
    if (LS_KERNEL_NAME(amx_samples_fits)(w))
        return LS_KERNEL_NAME(amx_samples_scratch)(w);
    return (w->pass == LS_CONV_WEIGHTS ? LS_KERNEL_NAME(amx_weights_scratch) : LS_KERNEL_NAME(amx_data_scratch))(w);
}

static void run(const struct ls_conv *w)
{
    if (LS_KERNEL_NAME(amx_samples_fits)(w))
        (w->pass == LS_CONV_WEIGHTS ? LS_KERNEL_NAME(amx_samples_weights) : LS_KERNEL_NAME(amx_samples_data))(w);
    else
        (w->pass == LS_CONV_WEIGHTS ? LS_KERNEL_NAME(amx_weights) : LS_KERNEL_NAME(amx_data))(w);
}

void LS_KERNEL_NAME(fill_amx)(struct ls_kernels *k)
{
    if (ls_amx_usable())
        k->conv[LS_CONV_AMX] = (struct ls_conv_kernel){scratch, run};
}

#else
void LS_KERNEL_NAME(fill_amx)(struct ls_kernels *k)
{
    (void)k;
}
#endif
