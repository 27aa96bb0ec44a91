/* Tests of the device kernels but batch normalisation and pooling, against plain loops on the host. One line a case,
 * "ok NAME ERROR" or "FAIL ..."; with the argument `bench`, speeds instead.
 *
 *   nvcc -O2 -std=c++17 -arch=sm_90 --expt-relaxed-constexpr -I src -I tests/gpu -o kernels_misc tests/gpu/kernels_misc.cu tests/gpu/misc_*.cu src/backend/cuda/kernels/{pointwise,dropout,move,lrn,loss,update,adamw,parts,data/image,data/shrink,conv/bias,conv/direct,conv/few,conv/few_pool,conv/narrow,pool/maxpool,conv/depthwise*}.cu src/base/random.c src/base/crop.c -lm
 */
#include "misc.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

const enum ls_dtype misc_types[3] = {LS_F32, LS_BF16, LS_F16};

const char *misc_type(enum ls_dtype t)
{
    return t == LS_F32 ? "f32" : t == LS_BF16 ? "bf16" : "f16";
}

double misc_tolerance(enum ls_dtype t)
{
    return t == LS_F32 ? 2e-5 : t == LS_BF16 ? 0x1.1p-8 : 0x1.1p-11;
}

static size_t size_of(enum ls_dtype t)
{
    return t == LS_F32 ? 4 : 2;
}

/* --- memory -------------------------------------------------------------------------------------------------- */

static void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

device::device(size_t size, int fill) : at(NULL), bytes(size)
{
    must(cudaMalloc(&at, bytes + 256), "cudaMalloc");
    must(cudaMemset(at, fill, bytes), "cudaMemset");
}

device::device(enum ls_dtype t, values &v) : device(v.size() * size_of(t))
{
    std::vector<unsigned short> half(v.size());
    for (size_t i = 0; i < v.size() && t != LS_F32; i++) {
        if (t == LS_BF16) {
            __nv_bfloat16 b = __float2bfloat16(v[i]);
            memcpy(&half[i], &b, 2);
            v[i] = __bfloat162float(b);
        } else {
            __half h = __float2half(v[i]);
            memcpy(&half[i], &h, 2);
            v[i] = __half2float(h);
        }
    }
    const void *from = t == LS_F32 ? (const void *)v.data() : half.data();
    must(cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice), "copy to device");
}

device::device(const std::vector<int32_t> &v) : device(v.size() * 4)
{
    must(cudaMemcpy(at, v.data(), bytes, cudaMemcpyHostToDevice), "copy to device");
}

device::~device()
{
    cudaFree(at);
}

values device::read(enum ls_dtype t, size_t count) const
{
    values v(count);
    std::vector<unsigned short> half(count);
    must(cudaDeviceSynchronize(), "kernel");
    void *to = t == LS_F32 ? (void *)v.data() : half.data();
    must(cudaMemcpy(to, at, count * size_of(t), cudaMemcpyDeviceToHost), "copy to host");
    for (size_t i = 0; i < count && t != LS_F32; i++) {
        if (t == LS_BF16) {
            __nv_bfloat16 b;
            memcpy(&b, &half[i], 2);
            v[i] = __bfloat162float(b);
        } else {
            __half h;
            memcpy(&h, &half[i], 2);
            v[i] = __half2float(h);
        }
    }
    return v;
}

std::vector<int32_t> device::read_ints(size_t count) const
{
    std::vector<int32_t> v(count);
    must(cudaDeviceSynchronize(), "kernel");
    must(cudaMemcpy(v.data(), at, count * 4, cudaMemcpyDeviceToHost), "copy to host");
    return v;
}

/* --- values -------------------------------------------------------------------------------------------------- */

values random_values(size_t n, float range)
{
    static uint64_t state = 1;
    values v(n);
    for (float &x : v) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x = ((float)(state >> 40) * 0x1p-23f - 1) * range;
    }
    return v;
}

values random_rows(size_t rows, int64_t real, int64_t stored, float range)
{
    values v = random_values(rows * (size_t)stored, range);
    for (size_t r = 0; r < rows; r++)
        std::fill(v.begin() + (ptrdiff_t)(r * stored + real), v.begin() + (ptrdiff_t)((r + 1) * stored), 0.0f);
    return v;
}

static int failures;

static void say(bool ok, const std::string &name, double error)
{
    printf("%s %s %.3g\n", ok ? "ok" : "FAIL", name.c_str(), error);
    failures += !ok;
}

void verdict(const std::string &name, const values &got, const values &want, double tolerance)
{
    double worst = got.size() == want.size() ? 0 : INFINITY;
    for (size_t i = 0; i < std::min(got.size(), want.size()); i++) {
        double e = fabs((double)got[i] - want[i]) / std::max(1.0, fabs((double)want[i]));
        worst = std::isfinite(e) ? std::max(worst, e) : INFINITY;
    }
    say(worst <= tolerance, name, worst);
}

void verdict_ints(const std::string &name, const std::vector<int32_t> &got, const std::vector<int32_t> &want)
{
    int wrong = 0;
    for (size_t i = 0; i < want.size(); i++)
        wrong += got[i] != want[i];
    say(!wrong && got.size() == want.size(), name, wrong);
}

void bench(const std::string &name, double bytes, const std::function<void()> &f)
{
    cudaEvent_t begin, end;
    std::vector<float> ms(20);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < 3; i++)
        f();
    for (float &t : ms) {
        cudaEventRecord(begin, 0);
        f();
        cudaEventRecord(end, 0);
        must(cudaEventSynchronize(end), name.c_str());
        cudaEventElapsedTime(&t, begin, end);
    }
    std::sort(ms.begin(), ms.end());
    printf("%-44s %8.1f us %7.0f GB/s\n", name.c_str(), ms[10] * 1e3, bytes / ms[10] * 1e-6);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        misc_bench();
        return 0;
    }
    misc_pointwise();
    misc_loss();
    misc_update();
    misc_conv();
    misc_image();
    printf("%d failed\n", failures);
    return failures != 0;
}
