/* The native Winograd (kernels/winograd.c) as one more implementation for tune.c. */
#include "backend/onednn/program.h"

#include <string.h>

bool winograd_fits(const struct ls_program *p, const struct dnn_spec *s)
{
    char src[48], dst[48];
    const char *blocked = p->k.block == 16 ? "aBcd16b" : "aBcd8b";
    dnn_md_text(s->src_md, src, sizeof src);
    dnn_md_text(s->dst_md, dst, sizeof dst);
    return p->k.winograd && strcmp(src, blocked) == 0 && strcmp(dst, blocked) == 0;
}

enum ls_status winograd_layout(const struct ls_program *p, const struct dnn_spec *s, struct dnn_md *wei)
{
    return dnn_md_init(wei, 4, s->wei, LS_F32, p->k.block == 16 ? DNN_WEIGHTS_16 : DNN_WEIGHTS_8);
}

void winograd_shape(const struct ls_program *p, const struct dnn_spec *s, struct ls_winograd *w)
{
    int64_t block = p->k.block, src = (s->src[1] + block - 1) / block, dst = (s->dst[1] + block - 1) / block;
    bool back = s->pass == DNN_BWD_DATA;
    const int64_t *in = back ? s->dst : s->src, *out = back ? s->src : s->dst;
    *w = (struct ls_winograd){.pass = back                         ? LS_WINOGRAD_DATA
                                      : s->pass == DNN_BWD_WEIGHTS ? LS_WINOGRAD_WEIGHTS
                                                                   : LS_WINOGRAD_FORWARD,
                              .threads = p->core.options.threads,
                              .n = s->src[0],
                              .in_blocks = back ? dst : src,
                              .in_h = in[2],
                              .in_w = in[3],
                              .out_blocks = back ? src : dst,
                              .out_h = out[2],
                              .out_w = out[3],
                              .pad_t = back ? 2 - s->pad_l[0] : s->pad_l[0],
                              .pad_l = back ? 2 - s->pad_l[1] : s->pad_l[1],
                              .act = s->act};
}

void winograd_point(struct ls_winograd *w, char *src, char *wei, char *bias, char *dst, char *scratch)
{
    bool back = w->pass == LS_WINOGRAD_DATA;
    w->in = (const float *)(back ? dst : src);
    w->out = (float *)(back ? src : dst);
    w->weights = (float *)wei;
    w->bias = (float *)bias;
    w->scratch = (float *)scratch;
}
