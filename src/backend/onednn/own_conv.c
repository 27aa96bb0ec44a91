/* Our own convolutions (kernels/winograd.c, kernels/amx_*.c) as further implementations for tune.c. */
#include "backend/onednn/program.h"

#include <string.h>

static bool winograd_fits(const struct dnn_spec *s)
{
    return s->wei[2] == 3 && s->wei[3] == 3 && s->stride[0] == 1 && s->stride[1] == 1 && s->dtype == LS_F32;
}

static bool amx_fits(const struct dnn_spec *s)
{
    return s->stride[0] == s->stride[1] && s->wei[2] * s->wei[3] <= LS_AMX_TAPS && s->dtype == LS_BF16;
}

bool own_conv_fits(const struct ls_program *p, const struct dnn_spec *s, enum ls_conv_method method)
{
    char src[48], dst[48];
    const char *blocked = p->k.block == 16 ? "aBcd16b" : "aBcd8b";
    if (!p->k.conv[method].run || s->kind != DNN_CONV || s->w_rank != 4 || s->dilation[0] != 0 || s->dilation[1] != 0 ||
        !(method == LS_CONV_AMX ? amx_fits : winograd_fits)(s))
        return false;
    dnn_md_text(s->src_md, src, sizeof src);
    dnn_md_text(s->dst_md, dst, sizeof dst);
    return strcmp(src, blocked) == 0 && strcmp(dst, blocked) == 0;
}

enum ls_status own_conv_layout(const struct ls_program *p, const struct dnn_spec *s, struct dnn_md *wei)
{
    return dnn_md_init(wei, 4, s->wei, LS_F32, p->k.block == 16 ? DNN_WEIGHTS_16 : DNN_WEIGHTS_8);
}

void own_conv_shape(const struct ls_program *p, const struct dnn_spec *s, enum ls_conv_method method, struct ls_conv *w)
{
    int64_t block = p->k.block, src = (s->src[1] + block - 1) / block, dst = (s->dst[1] + block - 1) / block;
    bool back = s->pass == DNN_BWD_DATA;
    const int64_t *in = back ? s->dst : s->src, *out = back ? s->src : s->dst;
    *w = (struct ls_conv){.method = method,
                          .pass = back                         ? LS_CONV_DATA
                                  : s->pass == DNN_BWD_WEIGHTS ? LS_CONV_WEIGHTS
                                                               : LS_CONV_FORWARD,
                          .threads = p->core.options.threads,
                          .n = s->src[0],
                          .in_blocks = back ? dst : src,
                          .in_h = in[2],
                          .in_w = in[3],
                          .out_blocks = back ? src : dst,
                          .out_h = out[2],
                          .out_w = out[3],
                          .kernel_h = s->wei[2],
                          .kernel_w = s->wei[3],
                          .stride = s->stride[0],
                          .pad_t = s->pad_l[0],
                          .pad_l = s->pad_l[1],
                          .act = s->act};
}

void own_conv_point(struct ls_conv *w, char *src, char *wei, char *bias, char *dst, char *scratch)
{
    bool back = w->pass == LS_CONV_DATA;
    w->in = back ? dst : src;
    w->out = back ? src : dst;
    w->weights = (float *)wei;
    w->bias = (float *)bias;
    w->scratch = scratch;
}
