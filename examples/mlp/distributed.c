/* A small network (64 inputs, 48 hidden units, 10 classes) learns a made-up data set, in plain loops. serial.c does so in
 * one process. distributed.c is the same program with ten lines added or changed, and runs on any number of processes. */
#include <lockstep.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { IN = 64, HIDDEN = 48, OUT = 10, SAMPLES = 6000, BATCH = 150, STEPS = SAMPLES / BATCH, EPOCHS = 6 };
enum { COUNT1 = HIDDEN * (IN + 1), COUNT2 = OUT * (HIDDEN + 1) };
#define RATE 0.2f

/* Weights, or their gradients. */
struct net {
    float layer1[COUNT1]; /* for each unit IN weights and a bias */
    float layer2[COUNT2];
};

static float inputs[SAMPLES][IN];
static int labels[SAMPLES];
/* of the batch at hand */
static float hidden[BATCH][HIDDEN], errors[BATCH][OUT];

/* A random number from -1 to 1, decided by its place alone. */
static float noise(uint64_t place)
{
    place = (place + 1) * UINT64_C(0x9E3779B97F4A7C15);
    place = (place ^ (place >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    place = (place ^ (place >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (float)((double)(place >> 11) / (double)(UINT64_C(1) << 52) - 1.0);
}

/* Ten patterns; each sample is one of them under a lot of noise. */
static void make_samples(void)
{
    for (uint64_t s = 0; s < SAMPLES; s++) {
        labels[s] = (int)((s * 7 + s / 10) % OUT);
        for (uint64_t i = 0; i < IN; i++)
            inputs[s][i] = 0.3f * noise((uint64_t)labels[s] * IN + i) + noise((s + 1000) * IN + i);
    }
}

static void make_weights(struct net *net)
{
    for (int i = 0; i < COUNT1; i++)
        net->layer1[i] = 0.15f * noise((UINT64_C(1) << 32) + (uint64_t)i);
    for (int i = 0; i < COUNT2; i++)
        net->layer2[i] = 0.15f * noise((UINT64_C(2) << 32) + (uint64_t)i);
}

/* The sum of the losses of samples first .. last-1 of a batch, and the errors at the outputs. */
static float forward(const struct net *net, int batch, size_t first, size_t last)
{
    float loss = 0;
    for (size_t s = first; s < last; s++) {
        const float *x = inputs[(size_t)batch * BATCH + s];
        int label = labels[(size_t)batch * BATCH + s];
        float z[OUT], sum = 0;
        for (int h = 0; h < HIDDEN; h++) {
            const float *w = net->layer1 + h * (IN + 1);
            float a = w[IN];
            for (int i = 0; i < IN; i++)
                a += w[i] * x[i];
            hidden[s][h] = a > 0 ? a : 0;
        }
        for (int o = 0; o < OUT; o++) {
            const float *w = net->layer2 + o * (HIDDEN + 1);
            z[o] = w[HIDDEN];
            for (int h = 0; h < HIDDEN; h++)
                z[o] += w[h] * hidden[s][h];
            sum += expf(z[o]);
        }
        for (int o = 0; o < OUT; o++)
            errors[s][o] = (expf(z[o]) / sum - (o == label ? 1.0f : 0.0f)) / BATCH;
        loss += logf(sum) - z[label];
    }
    return loss;
}

static void backward2(struct net *grad, size_t first, size_t last)
{
    memset(grad->layer2, 0, sizeof grad->layer2);
    for (size_t s = first; s < last; s++)
        for (int o = 0; o < OUT; o++) {
            float *g = grad->layer2 + o * (HIDDEN + 1);
            for (int h = 0; h < HIDDEN; h++)
                g[h] += errors[s][o] * hidden[s][h];
            g[HIDDEN] += errors[s][o];
        }
}

static void backward1(struct net *grad, const struct net *net, int batch, size_t first, size_t last)
{
    memset(grad->layer1, 0, sizeof grad->layer1);
    for (size_t s = first; s < last; s++)
        for (int h = 0; h < HIDDEN; h++) {
            float *g = grad->layer1 + h * (IN + 1), error = 0;
            for (int o = 0; o < OUT && hidden[s][h] > 0; o++)
                error += net->layer2[o * (HIDDEN + 1) + h] * errors[s][o];
            for (int i = 0; i < IN; i++)
                g[i] += error * inputs[(size_t)batch * BATCH + s][i];
            g[IN] += error;
        }
}

static void update(float *weights, const float *grad, int count)
{
    for (int i = 0; i < count; i++)
        weights[i] -= RATE * grad[i];
}

/* The mean loss of all samples. */
static float evaluate(const struct net *net)
{
    float loss = 0;
    for (int batch = 0; batch < STEPS; batch++)
        loss += forward(net, batch, 0, BATCH);
    return loss / SAMPLES;
}

int main(void)
{
    static struct net net, grad;
    size_t first = 0, last = BATCH;
    make_samples();
    make_weights(&net);
    struct lockstep *l = lockstep_init(NULL);
    lockstep_shard(l, BATCH, &first, &last);
    lockstep_broadcast(l, 0, &net, sizeof net);
    for (int step = 0; step < EPOCHS * STEPS; step++) {
        int batch = step % STEPS;
        forward(&net, batch, first, last);
        backward2(&grad, first, last);
        lockstep_submit(l, 2, grad.layer2, COUNT2, LOCKSTEP_SUM);
        backward1(&grad, &net, batch, first, last);
        lockstep_submit(l, 1, grad.layer1, COUNT1, LOCKSTEP_SUM);
        if (lockstep_wait_all(l) != 0)
            break;
        update(net.layer2, grad.layer2, COUNT2);
        update(net.layer1, grad.layer1, COUNT1);
        if (batch == STEPS - 1 && lockstep_rank(l) == 0)
            printf("epoch %d: loss %.6f\n", step / STEPS + 1, evaluate(&net));
    }
    return lockstep_finish(l, 0);
}
