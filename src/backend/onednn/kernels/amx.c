/* Convolutions by AMX; the passes are in amx_data.c and amx_weights.c. */
#include "backend/onednn/kernels/amx.h"

#ifdef LS_AMX

static size_t scratch(const struct ls_conv *w)
{
    return (w->pass == LS_CONV_WEIGHTS ? LS_KERNEL_NAME(amx_weights_scratch) : LS_KERNEL_NAME(amx_data_scratch))(w);
}

static void run(const struct ls_conv *w)
{
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
