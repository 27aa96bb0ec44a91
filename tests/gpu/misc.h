/* What the parts of kernels_misc share: values on host and device, and the verdict on a case. */
#ifndef LS_TESTS_GPU_MISC_H
#define LS_TESTS_GPU_MISC_H

#include "backend/cuda/kernels.h"

#include <cuda_runtime.h>
#include <functional>
#include <string>
#include <vector>

/* Neither mixup nor cutmix. */
static const struct ls_mix_rule no_mix = {0, 0, 0, 0};

typedef std::vector<float> values;

extern const enum ls_dtype misc_types[3];
const char *misc_type(enum ls_dtype t);
/* The relative error that rounding to t may make, with some room. */
double misc_tolerance(enum ls_dtype t);

inline int64_t pad8(int64_t n)
{
    return (n + 7) / 8 * 8;
}

/* Device memory that is freed at the end of its scope. Without values it is full of 0xff: not a number, or -1. */
class device
{
  public:
    explicit device(size_t bytes, int fill = 0xff);
    /* v becomes what the device holds: rounded to t. */
    device(enum ls_dtype t, values &v);
    explicit device(const std::vector<int32_t> &v);
    ~device();
    device(const device &) = delete;
    device &operator=(const device &) = delete;
    values read(enum ls_dtype t, size_t count) const;
    std::vector<int32_t> read_ints(size_t count) const;
    template <typename P> P *as() const
    {
        return (P *)at;
    }
    void *at;
    size_t bytes;
};

/* Device memory with one object. */
template <typename S> struct object : device {
    explicit object(const S &s) : device(sizeof(S))
    {
        cudaMemcpy(at, &s, sizeof s, cudaMemcpyHostToDevice);
    }
    S get() const
    {
        S s;
        cudaMemcpy(&s, at, sizeof s, cudaMemcpyDeviceToHost);
        return s;
    }
    S *ptr() const
    {
        return as<S>();
    }
};

/* Uniform in [-range, range]. */
values random_values(size_t n, float range = 1);
/* Rows of `real` values followed by zeros up to `stored`. */
values random_rows(size_t rows, int64_t real, int64_t stored, float range = 1);

/* One line for a case; errors are relative to max(1, |want|), and anything but a number is infinitely wrong. */
void verdict(const std::string &name, const values &got, const values &want, double tolerance);
void verdict_ints(const std::string &name, const std::vector<int32_t> &got, const std::vector<int32_t> &want);

/* The median of 20 timings, as GB/s. */
void bench(const std::string &name, double bytes, const std::function<void()> &f);

void misc_pointwise(void);
void misc_loss(void);
void misc_update(void);
void misc_conv(void);
void misc_image(void);
void misc_bench(void);

#endif
