/* Our own convolutions (kernels/winograd*.c, kernels/amx_*.c) as further implementations for tune.c. */
#include "backend/onednn/program.h"

#include <string.h>

/* The height of the kernel stands in wei behind groups, results and inputs. */
static const int64_t *kernel_of(const struct dnn_spec *s)
{
    return s->wei + s->w_rank - 2;
}

static bool winograd_fits(const struct ls_program *p, const struct dnn_spec *s)
{
    (void)p;
    return s->w_rank == 4 && s->wei[2] == 3 && s->wei[3] == 3 && s->stride[0] == 1;
}

static bool amx_fits(const struct ls_program *p, const struct dnn_spec *s)
{
    (void)p;
    return s->w_rank == 4 && s->wei[2] * s->wei[3] <= LS_AMX_TAPS && s->dtype == LS_BF16;
}

/* The taps and channels of a kernel's row fit into the rows of two tiles. */
static bool images_fit(const struct ls_program *p, const struct dnn_spec *s)
{
    (void)p;
    return s->w_rank == 4 && s->wei[1] * s->wei[3] <= 64 && s->dtype == LS_BF16 && s->pass != DNN_BWD_DATA;
}

static bool groups_fit(const struct ls_program *p, const struct dnn_spec *s)
{
    int64_t group = s->wei[1];
    return s->w_rank == 5 && group == s->wei[2] && group < p->k.block && (group == 2 || group == 4 || group == 8);
}

bool own_conv_fits(const struct ls_program *p, const struct dnn_spec *s, enum ls_conv_method method)
{
    static bool (*const fits[])(const struct ls_program *,
                                const struct dnn_spec *) = {[LS_CONV_WINOGRAD] = winograd_fits,
                                                            [LS_CONV_AMX] = amx_fits,
                                                            [LS_CONV_IMAGES] = images_fit,
                                                            [LS_CONV_GROUPS] = groups_fit};
    char src[48], dst[48];
    const char *blocked = p->k.block == 16 ? "aBcd16b" : "aBcd8b";
    if (!p->k.conv[method].run || s->kind != DNN_CONV || s->dilation[0] != 0 || s->dilation[1] != 0 ||
        s->stride[0] != s->stride[1] || !fits[method](p, s))
        return false;
    dnn_md_text(s->src_md, src, sizeof src);
    dnn_md_text(s->dst_md, dst, sizeof dst);
    return strcmp(src, method == LS_CONV_IMAGES ? "abcd" : blocked) == 0 && strcmp(dst, blocked) == 0;
}

enum ls_conv_method own_conv_placing(const struct ls_program *p, const struct dnn_spec *s)
{
    static const enum ls_conv_method methods[] = {LS_CONV_AMX, LS_CONV_IMAGES, LS_CONV_GROUPS, LS_CONV_WINOGRAD};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (own_conv_fits(p, s, methods[i]) && (methods[i] != LS_CONV_WINOGRAD || s->dtype == LS_BF16))
            return methods[i];
    return LS_CONV_LIBRARY;
}

enum ls_status own_conv_layout(const struct ls_program *p, const struct dnn_spec *s, enum ls_conv_method method,
                               struct dnn_md *wei)
{
    enum dnn_tag blocks = p->k.block == 16 ? DNN_WEIGHTS_16 : DNN_WEIGHTS_8;
    bool plain = method == LS_CONV_GROUPS || method == LS_CONV_IMAGES;
    return dnn_md_init(wei, s->w_rank, s->wei, LS_F32, plain ? DNN_PLAIN : blocks);
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
                          .kernel_h = kernel_of(s)[0],
                          .kernel_w = kernel_of(s)[1],
                          .stride = s->stride[0],
                          .pad_t = s->pad_l[0],
                          .pad_l = s->pad_l[1],
                          .group = s->w_rank == 5 ? s->wei[1] : 0,
                          .channels = s->src[1],
                          .results = s->dst[1],
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
