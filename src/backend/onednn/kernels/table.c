#include "backend/onednn/kernels/table.h"
#include "backend/onednn/kernels/simd.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

void LS_KERNEL_NAME(fill)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill)(struct ls_kernels *k)
{
    k->isa = TEXT(LS_KERNEL_ISA);
    k->block = B;
    k->dtype = LS_KERNEL_BF16 ? LS_BF16 : LS_F32;
    LS_KERNEL_NAME(fill_bn)(k);
    LS_KERNEL_NAME(fill_pool)(k);
    LS_KERNEL_NAME(fill_elementwise)(k);
    LS_KERNEL_NAME(fill_smooth)(k);
    LS_KERNEL_NAME(fill_channels)(k);
    LS_KERNEL_NAME(fill_depthwise)(k);
    LS_KERNEL_NAME(fill_winograd)(k);
    LS_KERNEL_NAME(fill_winograd_bf16)(k);
    LS_KERNEL_NAME(fill_amx)(k);
    LS_KERNEL_NAME(fill_amx_images)(k);
    LS_KERNEL_NAME(fill_groups)(k);
    LS_KERNEL_NAME(fill_dense)(k);
    LS_KERNEL_NAME(fill_loss)(k);
    LS_KERNEL_NAME(fill_pairs)(k);
}
