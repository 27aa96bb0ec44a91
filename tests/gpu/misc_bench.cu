/* Speeds at the sizes of real networks, batch 256. */
#include "misc.h"

#include <cstdio>
#include <memory>

#define FILL 0x3c /* in every byte: about 0.01, in any type */

static void sgd(const char *name, const std::vector<int64_t> &counts)
{
    struct ls_cuda_run run = {};
    run.lr = 0.1f;
    object<struct ls_cuda_run> dev_run(run);
    std::vector<struct ls_cuda_update> host;
    std::vector<std::unique_ptr<device>> memory;
    int64_t total = 0;
    for (int64_t count : counts) {
        auto room = [&](int size) {
            memory.emplace_back(new device((size_t)count * (size_t)size, FILL));
            return memory.back()->at;
        };
        struct ls_cuda_update u = {};
        u.param = (float *)room(4);
        u.state[0] = (float *)room(4);
        u.grad = room(4);
        u.half = room(2);
        u.count = count;
        u.hyper.momentum = 0.9f;
        u.hyper.weight_decay = 1e-4f;
        u.grad_t = LS_F32;
        u.half_t = LS_BF16;
        host.push_back(u);
        total += count;
    }
    int n = (int)host.size();
    ls_cuda_update_number(host.data(), n);
    device updates(host.size() * sizeof host[0]);
    cudaMemcpy(updates.at, host.data(), updates.bytes, cudaMemcpyHostToDevice);
    bench(name, (double)total * 22,
          [&] { ls_cuda_sgd(0, dev_run.ptr(), NULL, updates.as<struct ls_cuda_update>(), host.data(), n, 0, NULL); });
}

/* ResNet-50's tensors, as stored (the first convolution's input padded to 8 channels). */
static std::vector<int64_t> resnet50(void)
{
    static const int64_t blocks[4] = {3, 4, 6, 3};
    std::vector<int64_t> c = {64 * 49 * 8, 64, 64};
    auto conv = [&](int64_t in, int64_t out, int64_t window) {
        c.push_back(in * out * window);
        c.push_back(out);
        c.push_back(out);
    };
    for (int64_t stage = 0, in = 64; stage < 4; stage++) {
        int64_t width = 64 << stage;
        for (int64_t b = 0; b < blocks[stage]; b++, in = width * 4) {
            conv(in, width, 1);
            conv(width, width, 9);
            conv(width, width * 4, 1);
            if (!b)
                conv(in, width * 4, 1);
        }
    }
    c.push_back(2048 * 1000);
    c.push_back(1000);
    return c;
}

static void depthwise(int64_t channels, int64_t size, int stride)
{
    struct ls_cuda_conv c = {};
    c.t = LS_BF16;
    c.x = {256, size, size, channels};
    c.y = {256, size / stride, size / stride, channels};
    c.channels = c.out = c.groups = channels;
    c.kernel_h = c.kernel_w = 3;
    c.stride_h = c.stride_w = stride;
    c.pad_t = c.pad_l = c.dilation_h = c.dilation_w = 1;
    size_t nx = (size_t)(256 * size * size * channels), ny = nx / (size_t)(stride * stride);
    device x(nx * 2, FILL), y(ny * 2, FILL), w((size_t)channels * 18, FILL), dw((size_t)channels * 36, 0);
    device scratch(ls_cuda_depthwise_scratch(&c));
    double bytes = (double)(nx + ny) * 2;
    std::string name = std::to_string(channels) + "x" + std::to_string(size) + "x" + std::to_string(size) + " s" +
                       std::to_string(stride);
    bench("depthwise " + name, bytes, [&] { ls_cuda_depthwise(0, &c, x.at, w.at, NULL, y.at); });
    bench("depthwise_bwd_data " + name, bytes, [&] { ls_cuda_depthwise_bwd_data(0, &c, y.at, w.at, x.at); });
    bench("depthwise_bwd_weights " + name, bytes,
          [&] { ls_cuda_depthwise_bwd_weights(0, &c, y.at, x.at, dw.as<float>(), scratch.as<float>()); });
}

static void pointwise(void)
{
    int64_t count = (int64_t)256 * 56 * 56 * 256, rows = (int64_t)256 * 224 * 224;
    device a((size_t)count * 2, FILL), b((size_t)count * 2, FILL), y((size_t)count * 2, FILL), db(512 * 4);
    double bytes = (double)count * 2;
    bench("act 256x56x56x256", bytes * 2, [&] { ls_cuda_act(0, LS_BF16, LS_ACT_RELU, a.at, y.at, count); });
    bench("act_bwd 256x56x56x256", bytes * 3,
          [&] { ls_cuda_act_bwd(0, LS_BF16, LS_ACT_RELU, a.at, b.at, y.at, count); });
    bench("add 256x56x56x256", bytes * 3, [&] { ls_cuda_add(0, LS_BF16, LS_ACT_NONE, a.at, b.at, y.at, count); });
    device x((size_t)rows * 128, FILL), scratch(ls_cuda_bias_scratch(rows, 64), 0);
    device less(ls_cuda_bias_scratch(256 * 196, 512), 0);
    bench("bias 256x224x224x64", (double)rows * 256,
          [&] { ls_cuda_bias(0, LS_BF16, LS_ACT_RELU, x.at, NULL, x.at, rows, 64); });
    bench("bias_bwd 256x224x224x64", (double)rows * 128,
          [&] { ls_cuda_bias_bwd(0, LS_BF16, x.at, db.as<float>(), rows, 64, scratch.as<float>()); });
    bench("bias_bwd 256x14x14x512", 256.0 * 196 * 1024,
          [&] { ls_cuda_bias_bwd(0, LS_BF16, x.at, db.as<float>(), 256 * 196, 512, less.as<float>()); });
}

static void others(void)
{
    struct ls_cuda_map m = {256, 224, 224, 8};
    device images((size_t)256 * 3 * 224 * 224 * 4, FILL), to((size_t)256 * 224 * 224 * 16);
    std::vector<int32_t> few(256, 7);
    device labels(few), logits((size_t)256 * 1000 * 2, FILL), loss(1024), rank(1024), prob((size_t)256 * 1000 * 4);
    struct ls_cuda_run run = {};
    run.images = images.at;
    run.labels = labels.as<int32_t>();
    object<struct ls_cuda_run> dev_run(run);
    bench("image_planes 256x3x224x224", 256.0 * 224 * 224 * 28,
          [&] { ls_cuda_image_planes(0, LS_BF16, dev_run.ptr(), &m, 3, to.at); });
    bench("softmax_xent 256x1000", 256.0 * 1000 * 4, [&] {
        ls_cuda_softmax_xent(0, LS_BF16, dev_run.ptr(), 256, 1000, 1000, 0.1f, &no_mix, logits.at, loss.as<float>(),
                             rank.as<int32_t>(), prob.as<float>());
    });
    int64_t rows = 256 * 55 * 55, count = rows * 64;
    device x((size_t)count * 2, FILL), dy((size_t)count * 2, FILL), y((size_t)count * 2, FILL);
    bench("lrn 256x55x55x64", (double)count * 4,
          [&] { ls_cuda_lrn(0, LS_BF16, rows, 64, 64, 5, 1e-4f, 0.75f, 2, x.at, y.at); });
    bench("lrn_bwd 256x55x55x64", (double)count * 6,
          [&] { ls_cuda_lrn_bwd(0, LS_BF16, rows, 64, 64, 5, 1e-4f, 0.75f, 2, dy.at, x.at, y.at); });
    struct ls_cuda_map rows4096 = {256, 1, 1, 4096};
    bench("dropout 256x4096", 256.0 * 4096 * 4,
          [&] { ls_cuda_dropout(0, LS_BF16, dev_run.ptr(), 1, 0.5f, &rows4096, 4096, x.at, y.at); });
}

/* recipes/cifar10-fast */
static void few_channels(void)
{
    struct ls_cuda_conv c = {};
    c.t = LS_F16;
    c.x = {2000, 31, 31, 24};
    c.y = {2000, 31, 31, 64};
    c.channels = 24;
    c.out = 64;
    c.groups = 1;
    c.kernel_h = c.kernel_w = 3;
    c.stride_h = c.stride_w = c.pad_t = c.pad_l = c.dilation_h = c.dilation_w = 1;
    const double in = 2000.0 * 961 * 48, out = 2000.0 * 961 * 128, pooled = 2000.0 * 225 * 192;
    device x((size_t)in, 0x11), y((size_t)out, 0x11), w((size_t)64 * 216 * 2, 0x11), dw((size_t)64 * 216 * 4);
    device index((size_t)2000 * 225 * 64, 1), scratch(ls_cuda_few_scratch(&c));
    bench("few 2000x31x31x24 to 64", in + out, [&] { ls_cuda_few(0, &c, x.at, w.at, y.at); });
    bench("few, gradient of weights", in + out,
          [&] { ls_cuda_few_bwd_weights(0, &c, y.at, x.at, dw.as<float>(), scratch.as<float>()); });
    bench("few with pool", in + pooled, [&] { ls_cuda_few_pool(0, &c, x.at, w.at, y.at, (uint8_t *)index.at); });
    bench("few with pool, gradient of weights", in + pooled, [&] {
        ls_cuda_few_pool_bwd_weights(0, &c, y.at, (const uint8_t *)index.at, x.at, dw.as<float>(), scratch.as<float>());
    });
}

void misc_bench(void)
{
    static const struct {
        int64_t channels, size;
        int stride;
    } mobilenet[] = {{32, 112, 1}, {96, 112, 2}, {144, 56, 1}, {144, 56, 2}, {192, 28, 1},
                     {192, 28, 2}, {384, 14, 1}, {576, 14, 1}, {576, 14, 2}, {960, 7, 1}};
    few_channels();
    sgd("sgd resnet50", resnet50());
    sgd("sgd alexnet", {64 * 121 * 8, 64, 192 * 25 * 64, 192, 384 * 9 * 192, 384, 256 * 9 * 384, 256, 256 * 9 * 256,
                        256, 4096 * 9216, 4096, 4096 * 4096, 4096, 4096 * 1000, 1000});
    for (const auto &m : mobilenet)
        depthwise(m.channels, m.size, m.stride);
    pointwise();
    others();
}
