#define _GNU_SOURCE
#include "report/gpu.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PERIOD_NS 500000000

/* --- the functions of NVML in use ------------------------------------------------------------------------------- */

enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_TEMPERATURE_GPU = 0 };

struct nvml_utilization {
    unsigned gpu, memory;
};
struct nvml_memory {
    unsigned long long total, free, used;
};

struct ls_nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *version, unsigned room);
    int (*find)(const char *bus, void **card);
    int (*utilisation)(void *card, struct nvml_utilization *u);
    int (*memory)(void *card, struct nvml_memory *m);
    int (*power)(void *card, unsigned *milliwatts);
    int (*clock)(void *card, int which, unsigned *mhz);
    int (*temperature)(void *card, int which, unsigned *degrees);
};

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* Close *library with close_nvml. */
static bool open_nvml(void **library, struct ls_nvml *n)
{
    *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (*library && find(*library, "nvmlInit_v2", &n->init) && find(*library, "nvmlShutdown", &n->shutdown) &&
        find(*library, "nvmlSystemGetDriverVersion", &n->driver) &&
        find(*library, "nvmlDeviceGetHandleByPciBusId_v2", &n->find) &&
        find(*library, "nvmlDeviceGetUtilizationRates", &n->utilisation) &&
        find(*library, "nvmlDeviceGetMemoryInfo", &n->memory) && find(*library, "nvmlDeviceGetPowerUsage", &n->power) &&
        find(*library, "nvmlDeviceGetClockInfo", &n->clock) &&
        find(*library, "nvmlDeviceGetTemperature", &n->temperature) && n->init() == NVML_SUCCESS)
        return true;
    if (*library)
        dlclose(*library);
    *library = NULL;
    return false;
}

static void close_nvml(void *library, const struct ls_nvml *n)
{
    n->shutdown();
    dlclose(library);
}

bool ls_gpu_driver(char *version, size_t room)
{
    struct ls_nvml n;
    void *library;
    if (!open_nvml(&library, &n))
        return false;
    bool known = n.driver(version, (unsigned)room) == NVML_SUCCESS;
    close_nvml(library, &n);
    return known;
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

static struct ls_gpu_state read_state(const struct ls_nvml *n, void *card)
{
    struct ls_gpu_state s = {NAN, NAN, NAN, NAN, NAN};
    struct nvml_utilization u;
    struct nvml_memory m;
    unsigned value;
    if (n->utilisation(card, &u) == NVML_SUCCESS)
        s.utilisation = u.gpu;
    if (n->memory(card, &m) == NVML_SUCCESS)
        s.memory = (double)m.used;
    if (n->power(card, &value) == NVML_SUCCESS)
        s.power = value / 1000.0;
    if (n->clock(card, NVML_CLOCK_SM, &value) == NVML_SUCCESS)
        s.clock = value;
    if (n->temperature(card, NVML_TEMPERATURE_GPU, &value) == NVML_SUCCESS)
        s.temperature = value;
    return s;
}

static void add_sample(struct ls_gpu *g, const struct ls_gpu_state *state)
{
    double figures[LS_GPU_FIGURES];
    memcpy(figures, state, sizeof figures);
    for (int i = 0; i < LS_GPU_FIGURES; i++)
        if (isfinite(figures[i])) {
            g->sums.n[i]++;
            g->sums.sum[i] += figures[i];
        }
    if (state->memory > g->most_memory)
        g->most_memory = state->memory;
    g->last = *state;
}

static void *sample(void *gpu)
{
    struct ls_gpu *g = gpu;
    struct timespec next;
    pthread_mutex_lock(&g->lock);
    while (!g->end) {
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_nsec += PERIOD_NS;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        while (!g->end && pthread_cond_timedwait(&g->ended, &g->lock, &next) == 0)
            ;
        if (g->end)
            break;
        pthread_mutex_unlock(&g->lock);
        struct ls_gpu_state state = read_state(g->nvml, g->card); /* may be slow: without the lock */
        pthread_mutex_lock(&g->lock);
        add_sample(g, &state);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static bool start(struct ls_gpu *g)
{
    pthread_condattr_t by_clock;
    if (pthread_condattr_init(&by_clock) != 0)
        return false;
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->ended, &by_clock);
    pthread_condattr_destroy(&by_clock);
    if (pthread_create(&g->thread, NULL, sample, g) == 0)
        return true;
    pthread_cond_destroy(&g->ended);
    pthread_mutex_destroy(&g->lock);
    return false;
}

bool ls_gpu_watch(struct ls_gpu *g, const char *bus)
{
    *g = (struct ls_gpu){0};
    if (!*bus)
        return false;
    struct ls_nvml *n = ls_alloc(1, sizeof *n);
    if (!n || !open_nvml(&g->library, n)) {
        ls_free(n);
        return false;
    }
    g->nvml = n;
    if (n->find(bus, &g->card) == NVML_SUCCESS) {
        g->last = read_state(n, g->card); /* not part of a mean: nothing has been computed yet */
        if (start(g))
            return true;
    }
    close_nvml(g->library, n);
    ls_free(n);
    *g = (struct ls_gpu){0};
    return false;
}

void ls_gpu_stop(struct ls_gpu *g)
{
    if (!g->library)
        return;
    pthread_mutex_lock(&g->lock);
    g->end = true;
    pthread_cond_signal(&g->ended);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->ended);
    pthread_mutex_destroy(&g->lock);
    close_nvml(g->library, g->nvml);
    ls_free((void *)(uintptr_t)g->nvml);
    *g = (struct ls_gpu){0};
}

/* --- access ------------------------------------------------------------------------------------------------------- */

bool ls_gpu_last(struct ls_gpu *g, struct ls_gpu_state *state)
{
    if (!g->library)
        return false;
    pthread_mutex_lock(&g->lock);
    *state = g->last;
    pthread_mutex_unlock(&g->lock);
    return true;
}

void ls_gpu_sums(struct ls_gpu *g, struct ls_gpu_sums *sums)
{
    *sums = (struct ls_gpu_sums){0};
    if (!g->library)
        return;
    pthread_mutex_lock(&g->lock);
    *sums = g->sums;
    pthread_mutex_unlock(&g->lock);
}

bool ls_gpu_mean(struct ls_gpu *g, const struct ls_gpu_sums *since, struct ls_gpu_state *mean)
{
    struct ls_gpu_sums now;
    double figures[LS_GPU_FIGURES];
    bool any = false;
    ls_gpu_sums(g, &now);
    for (int i = 0; i < LS_GPU_FIGURES; i++) {
        int64_t n = now.n[i] - (since ? since->n[i] : 0);
        figures[i] = n > 0 ? (now.sum[i] - (since ? since->sum[i] : 0)) / (double)n : NAN;
        any = any || n > 0;
    }
    memcpy(mean, figures, sizeof figures);
    if (any && isfinite(mean->memory)) {
        pthread_mutex_lock(&g->lock);
        mean->memory = g->most_memory;
        pthread_mutex_unlock(&g->lock);
    }
    return any;
}

/* Appends a value and its unit. */
static int put(char *text, int used, double value, int digits, const char *unit)
{
    if (!isfinite(value) || used >= LS_GPU_TEXT)
        return used;
    return used + snprintf(text + used, LS_GPU_TEXT - (size_t)used, "%s%.*f%s", used ? ", " : "", digits, value, unit);
}

void ls_gpu_text(const struct ls_gpu_state *mean, char text[LS_GPU_TEXT])
{
    text[0] = 0;
    int used = put(text, 0, mean->utilisation, 0, "% busy on average");
    used = put(text, used, mean->power, 0, " W");
    used = put(text, used, mean->clock, 0, " MHz");
    put(text, used, mean->memory / 0x1p30, 1, " GiB");
}
