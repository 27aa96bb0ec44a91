/* Cases of the optimizers: lists of tensors of all kinds in one call, and the loss scale. */
#include "misc.h"

#include <cmath>
#include <memory>

/* One tensor on both sides. */
struct parameter {
    values w, m, g;
    std::unique_ptr<device> dev_w, dev_m, dev_g, half;
    struct ls_cuda_update u;
};

static void add(std::vector<parameter> &list, size_t count, enum ls_dtype grad_t, enum ls_dtype half_t, bool momentum,
                bool nesterov, float trust)
{
    parameter p;
    p.w = random_values(count);
    p.m = random_values(count);
    p.g = random_values(count, 3);
    p.dev_w.reset(new device(LS_F32, p.w));
    p.dev_m.reset(new device(LS_F32, p.m));
    p.dev_g.reset(new device(grad_t, p.g));
    p.half.reset(new device(count * 2));
    p.u = {};
    p.u.param = p.dev_w->as<float>();
    p.u.state[0] = momentum ? p.dev_m->as<float>() : NULL;
    p.u.grad = p.dev_g->at;
    p.u.half = half_t == LS_F32 ? NULL : p.half->at;
    p.u.count = (int64_t)count;
    p.u.hyper.momentum = 0.9f;
    p.u.hyper.weight_decay = 0.01f;
    p.u.hyper.trust = trust;
    p.u.norms = trust > 0;
    p.u.nesterov = nesterov;
    p.u.grad_t = grad_t;
    p.u.half_t = half_t;
    list.push_back(std::move(p));
}

static double norm(const values &v)
{
    double sum = 0;
    for (float x : v)
        sum += (double)x * x;
    return sqrt(sum);
}

static void step(parameter &p, double lr, double scale)
{
    const struct ls_cuda_update &u = p.u;
    double length = norm(p.w), slope = norm(p.g) / scale, local = 1;
    if (u.norms && length > 0 && slope > 0)
        local = u.hyper.trust * length / (slope + u.hyper.weight_decay * length + 1e-9);
    for (size_t i = 0; i < p.w.size(); i++) {
        double g = p.g[i] / scale + u.hyper.weight_decay * p.w[i];
        if (u.norms) {
            double m = u.hyper.momentum * p.m[i] + local * lr * g;
            p.m[i] = (float)m;
            p.w[i] = (float)(p.w[i] - m);
            continue;
        }
        double s = g;
        if (u.state[0]) {
            double m = u.hyper.momentum * p.m[i] + g;
            p.m[i] = (float)m;
            s = u.nesterov ? g + u.hyper.momentum * m : m;
        }
        p.w[i] = (float)(p.w[i] - lr * s);
    }
}

static void run_list(const std::string &name, std::vector<parameter> &list, struct ls_cuda_scale *scale)
{
    struct ls_cuda_run run = {};
    run.lr = 0.25f;
    std::vector<struct ls_cuda_update> host;
    for (parameter &p : list)
        host.push_back(p.u);
    int n = (int)host.size();
    ls_cuda_update_number(host.data(), n);
    device dev(host.size() * sizeof host[0]), scratch(ls_cuda_update_scratch(host.data(), n));
    object<struct ls_cuda_run> dev_run(run);
    struct ls_cuda_scale none = {1, 0, 0, 0};
    object<struct ls_cuda_scale> dev_scale(scale ? *scale : none);
    cudaMemcpy(dev.at, host.data(), dev.bytes, cudaMemcpyHostToDevice);
    ls_cuda_sgd(0, dev_run.ptr(), scale ? dev_scale.ptr() : NULL, dev.as<struct ls_cuda_update>(), host.data(), n, 0,
                scratch.as<float>());
    for (int i = 0; i < n; i++) {
        parameter &p = list[(size_t)i];
        std::string which = name + " " + std::to_string(i);
        bool skipped = scale && scale->overflow;
        if (!skipped)
            step(p, run.lr, scale ? scale->scale : 1);
        verdict(which + " param", p.dev_w->read(LS_F32, p.w.size()), p.w, 1e-5);
        verdict(which + " momentum", p.dev_m->read(LS_F32, p.m.size()), p.m, 1e-5);
        if (p.u.half && !skipped)
            verdict(which + " half", p.half->read((enum ls_dtype)p.u.half_t, p.w.size()), p.w,
                    misc_tolerance((enum ls_dtype)p.u.half_t));
    }
}

static void scaling(void)
{
    std::vector<parameter> list;
    struct ls_cuda_scale scale = {1024, 1, 2, 0};
    object<struct ls_cuda_scale> dev(scale);
    std::vector<struct ls_cuda_update> host;
    add(list, 4096 * 3 + 8, LS_F32, LS_F16, true, false, 0);
    add(list, 24, LS_F16, LS_F16, true, false, 0);
    list[0].g[4096 * 3 + 7] = INFINITY;
    for (parameter &p : list)
        host.push_back(p.u);
    ls_cuda_update_number(host.data(), 2);
    device updates(host.size() * sizeof host[0]);
    cudaMemcpy(updates.at, host.data(), updates.bytes, cudaMemcpyHostToDevice);
    for (int pass = 0; pass < 4; pass++) {
        if (pass == 2)
            cudaMemcpy(list[0].dev_g->at, list[0].g.data(), list[0].dev_g->bytes, cudaMemcpyHostToDevice);
        ls_cuda_scale_begin(0, dev.ptr());
        ls_cuda_scale_check(0, dev.ptr(), updates.as<struct ls_cuda_update>(), host.data(), 2);
        ls_cuda_scale_end(0, dev.ptr(), pass == 3 ? 0 : 3);
        cudaDeviceSynchronize();
        struct ls_cuda_scale s = dev.get();
        static const struct ls_cuda_scale want[] = {{2048, 0, 0, 0}, {2048, 0, 1, 0}, {1024, 1, 0, 1}, {1024, 1, 0, 2}};
        verdict_ints("scale " + std::to_string(pass), {(int32_t)s.scale, s.overflow, s.good, s.skipped},
                     {(int32_t)want[pass].scale, want[pass].overflow, want[pass].good, want[pass].skipped});
    }
}

/* One bit of one parameter, or of its momentum, makes another sum; without it, it is the same again. */
static void checksum(int momentum)
{
    std::vector<parameter> list;
    std::vector<struct ls_cuda_update> host;
    for (size_t count : {4096 * 3 + 8, 24, 4096, 70000})
        add(list, count, LS_F32, LS_BF16, true, false, 0);
    for (parameter &p : list)
        host.push_back(p.u);
    int n = (int)host.size();
    ls_cuda_update_number(host.data(), n);
    device updates(host.size() * sizeof host[0]);
    cudaMemcpy(updates.at, host.data(), updates.bytes, cudaMemcpyHostToDevice);
    auto sum_of = [&] {
        object<uint64_t> sum(0);
        ls_cuda_checksum(0, updates.as<struct ls_cuda_update>(), host.data(), n, momentum, sum.ptr());
        cudaDeviceSynchronize();
        return sum.get();
    };
    const uint64_t whole = sum_of();
    for (int i = 0; i < 2 * n; i++) {
        uint32_t *word = (momentum ? list[(size_t)i / 2].dev_m : list[(size_t)i / 2].dev_w)->as<uint32_t>() +
                         (i % 2 ? 0 : list[(size_t)i / 2].w.size() - 1);
        for (uint32_t bit : {0x80000000u, 1u}) {
            uint32_t value, flipped;
            cudaMemcpy(&value, word, sizeof value, cudaMemcpyDeviceToHost);
            flipped = value ^ bit;
            cudaMemcpy(word, &flipped, sizeof flipped, cudaMemcpyHostToDevice);
            bool other = sum_of() != whole;
            cudaMemcpy(word, &value, sizeof value, cudaMemcpyHostToDevice);
            verdict_ints("checksum " + std::to_string(momentum) + " " + std::to_string(i), {other, sum_of() == whole},
                         {1, 1});
        }
    }
}

/* adamw on tensors of all kinds, as optim/adamw.c defines it; after an overflow parameters and both averages stay. */
static void adamw(const std::string &name, struct ls_cuda_scale *scale)
{
    const struct {
        size_t count;
        enum ls_dtype grad_t, half_t;
    } tensors[] = {{8, LS_F32, LS_BF16}, {10000, LS_BF16, LS_BF16}, {4096, LS_F16, LS_F16}, {70000, LS_F32, LS_F32}};
    std::vector<parameter> list;
    std::vector<values> squares;
    std::vector<std::unique_ptr<device>> dev_squares;
    std::vector<struct ls_cuda_update> host;
    struct ls_cuda_run run = {};
    run.lr = 0.25f;
    run.step = 6;
    for (auto &t : tensors) {
        add(list, t.count, t.grad_t, t.half_t, true, false, 0);
        values v = random_values(t.count);
        for (float &x : v)
            x *= x;
        struct ls_cuda_update &u = list.back().u;
        dev_squares.emplace_back(new device(LS_F32, v));
        squares.push_back(v);
        u.state[1] = dev_squares.back()->as<float>();
        u.hyper.beta1 = 0.9;
        u.hyper.beta2 = 0.999;
        u.hyper.eps = 1e-8;
        u.rule = 2;
        host.push_back(u);
    }
    int n = (int)host.size();
    ls_cuda_update_number(host.data(), n);
    device updates(host.size() * sizeof host[0]);
    object<struct ls_cuda_run> dev_run(run);
    struct ls_cuda_scale none = {1, 0, 0, 0};
    object<struct ls_cuda_scale> dev_scale(scale ? *scale : none);
    cudaMemcpy(updates.at, host.data(), updates.bytes, cudaMemcpyHostToDevice);
    for (int rule : {1, 2}) /* the first finds no tensor of its rule */
        ls_cuda_adamw(0, dev_run.ptr(), scale ? dev_scale.ptr() : NULL, updates.as<struct ls_cuda_update>(),
                      host.data(), n, rule, NULL);
    for (int i = 0; i < n; i++) {
        parameter &p = list[(size_t)i];
        values &v = squares[(size_t)i];
        const struct ls_hyper &h = p.u.hyper;
        double rate = run.lr / (1 - pow(h.beta1, 7)), root = sqrt(1 - pow(h.beta2, 7));
        for (size_t k = 0; k < p.w.size() && !(scale && scale->overflow); k++) {
            double g = p.g[k] / (scale ? scale->scale : 1);
            p.m[k] = (float)(h.beta1 * p.m[k] + (1 - h.beta1) * g);
            v[k] = (float)(h.beta2 * v[k] + (1 - h.beta2) * g * g);
            p.w[k] = (float)(p.w[k] * (1 - run.lr * h.weight_decay) - rate * p.m[k] / (sqrt(v[k]) / root + h.eps));
        }
        std::string which = name + " " + std::to_string(i);
        verdict(which + " param", p.dev_w->read(LS_F32, p.w.size()), p.w, 1e-5);
        verdict(which + " exp_avg", p.dev_m->read(LS_F32, p.m.size()), p.m, 1e-5);
        verdict(which + " exp_avg_sq", dev_squares[(size_t)i]->read(LS_F32, v.size()), v, 1e-5);
    }
}

void misc_update(void)
{
    std::vector<parameter> list, many;
    struct ls_cuda_scale fine = {128, 0, 0, 0}, bad = {128, 1, 0, 0};
    add(list, 8, LS_F32, LS_BF16, true, false, 0);
    add(list, 10000, LS_BF16, LS_BF16, true, true, 0);
    add(list, 4096, LS_F16, LS_F16, false, false, 0);
    add(list, 4104, LS_F32, LS_F32, true, false, 0);
    run_list("sgd", list, NULL);
    run_list("sgd scaled", list, &fine);
    run_list("sgd overflow", list, &bad);
    add(list, 30000, LS_F32, LS_BF16, true, false, 0.02f);
    add(list, 64, LS_BF16, LS_F16, true, false, 0.02f);
    run_list("lars", list, NULL);
    run_list("lars scaled", list, &fine);
    for (int i = 0; i < 300; i++)
        add(many, (size_t)(8 + 8 * (i % 7)), LS_F32, LS_F32, true, false, 0);
    run_list("sgd many", many, NULL);
    adamw("adamw", NULL);
    adamw("adamw scaled", &fine);
    adamw("adamw overflow", &bad);
    scaling();
    checksum(0);
    checksum(1);
}
