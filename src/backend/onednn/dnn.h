/* An adapter for oneDNN 2.6 (Debian 12) and 3.x. Only the files dnn*.c depend on the version. */
#ifndef LS_BACKEND_ONEDNN_DNN_H
#define LS_BACKEND_ONEDNN_DNN_H

#include "base/status.h"
#include "graph/graph.h"
#include <dnnl.h>

/* A memory layout. Zero is "no layout"; release what init, copy or query filled. */
struct dnn_md {
    dnnl_memory_desc_t d; /* 2.x: the value itself; 3.x: an owned handle */
    bool set;
};
enum dnn_tag { DNN_ANY, DNN_PLAIN, DNN_BLOCKED_8, DNN_BLOCKED_16, DNN_WEIGHTS_8, DNN_WEIGHTS_16, DNN_ROWS_64 };
enum ls_status dnn_md_init(struct dnn_md *md, int rank, const int64_t *dims, enum ls_dtype dtype, enum dnn_tag tag);
enum ls_status dnn_md_copy(struct dnn_md *to, const struct dnn_md *from);
void dnn_md_release(struct dnn_md *md);
bool dnn_md_equal(const struct dnn_md *a, const struct dnn_md *b);
size_t dnn_md_bytes(const struct dnn_md *md);
/* The same logical tensor in plain row-major order. */
enum ls_status dnn_md_plain(struct dnn_md *to, const struct dnn_md *from, enum ls_dtype dtype);
/* "OIhw16i16o"-like text for people. */
void dnn_md_text(const struct dnn_md *md, char *text, size_t room);
/* What coordinate i of dimension `dim` adds to the offset of an element. Filters in groups have five dimensions, the first of
 * which is the group. -1: the layout has no such offsets. */
int64_t dnn_md_place(const struct dnn_md *md, int dim, int64_t i);
/* The number of dimensions; 0: likewise. */
int dnn_md_rank(const struct dnn_md *md);

struct dnn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};
enum ls_status dnn_open(struct dnn *d);
void dnn_close(struct dnn *d);
const char *dnn_version(char text[32]);
/* The instruction set of the native kernels that has the block size of oneDNN on this processor; NULL: any. */
const char *dnn_isa(void);
/* Some virtual machines advertise AMX and fault on it. Try AMX in a child process; if that process dies, keep oneDNN from
 * using AMX. Call this before anything else of this header, as oneDNN fixes its instruction set at the first call. Only bf16
 * uses AMX. */
enum dnn_amx {
    DNN_AMX_FINE,  /* or there is none */
    DNN_AMX_OFF,   /* it faults, and is not used */
    DNN_AMX_FAULTS /* it faults, and can no longer be turned off */
};
enum dnn_amx dnn_guard_amx(void);

/* A convolution or dense layer in one of its three passes. */
enum dnn_kind { DNN_CONV, DNN_DENSE };
enum dnn_pass { DNN_FORWARD, DNN_BWD_DATA, DNN_BWD_WEIGHTS };
struct dnn_spec {
    enum dnn_kind kind;
    enum dnn_pass pass;
    int rank, w_rank; /* of src (2 or 4) and weights (2, 4, or 5 with groups) */
    int64_t src[4], wei[5], dst[4];
    dnnl_dims_t stride, dilation, pad_l, pad_r; /* h, w; dilation as oneDNN counts: 0 = none */
    bool bias, winograd;
    enum ls_act act; /* forward passes */
    enum ls_dtype dtype;
    const struct dnn_md *src_md, *dst_md, *wei_md; /* wei_md NULL: the library chooses */
};

/* One implementation of a spec. */
struct dnn_pd {
    dnnl_primitive_desc_t pd;
    char name[64];
};
/* Implementations of the spec in the library's order, at most room; 0 when there is none. Reference ones are left
 * out unless nothing else exists. */
int dnn_list(const struct dnn *d, const struct dnn_spec *spec, struct dnn_pd *list, int room);
enum ls_status dnn_reorder_pd(const struct dnn *d, const struct dnn_md *from, const struct dnn_md *to,
                              struct dnn_pd *pd);
/* Does oneDNN have this reorder? It lacks some. */
bool dnn_can_reorder(const struct dnn *d, const struct dnn_md *from, const struct dnn_md *to);
void dnn_pd_release(struct dnn_pd *pd);
/* Layout of an argument (the DNNL_ARG_* number); unset when the primitive has none. */
enum ls_status dnn_pd_md(const struct dnn_pd *pd, int arg, struct dnn_md *md);

/* A primitive ready to run: arguments are memory objects whose addresses can change. */
#define DNN_MAX_ARGS 6
struct dnn_prim {
    dnnl_primitive_t p;
    dnnl_exec_arg_t args[DNN_MAX_ARGS];
    int n_args;
};
enum ls_status dnn_prim_init(const struct dnn *d, const struct dnn_pd *pd, const int *args, int n_args,
                             struct dnn_prim *prim);
void dnn_prim_point(struct dnn_prim *prim, int arg, void *address);
enum ls_status dnn_prim_run(const struct dnn *d, const struct dnn_prim *prim);
void dnn_prim_release(struct dnn_prim *prim);

/* --- for dnn*.c ------------------------------------------------------------------------------------------- */

/* A layout as the library's calls take it. */
#if DNNL_VERSION_MAJOR >= 3
#define DNN_MD(m) ((m)->d)
typedef const_dnnl_memory_desc_t dnn_md_ref;
#else
#define DNN_MD(m) (&(m)->d)
typedef const dnnl_memory_desc_t *dnn_md_ref;
#endif
/* Reports a failure of the library. */
enum ls_status dnn_check(dnnl_status_t status, const char *what);

#endif
