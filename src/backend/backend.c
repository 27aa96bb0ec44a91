#include "backend/backend.h"
#include "base/log.h"
#include "base/system/module.h"
#include "base/random.h"

#include <string.h>
#include <unistd.h>

#define X(name) extern const struct ls_backend ls_backend_##name;
#define MODULE(name)
#include "config/lists/backends.def"

/* The backends that are part of the program, the preferred first. */
const struct ls_backend *const ls_backends[] = {
#define X(name) &ls_backend_##name,
#define MODULE(name)
#include "config/lists/backends.def"
    NULL,
};

static enum ls_status load_cuda(const struct ls_backend **backend)
{
    const void *found;
    LS_TRY(ls_module_load("lockstep-cuda.so", "ls_backend_module", "take --backend onednn", &found));
    *backend = found;
    return LS_OK;
}

/* A card, as far as can be told without loading anything. */
static bool card_there(void)
{
    return access("/dev/nvidiactl", R_OK | W_OK) == 0 && ls_module_find("lockstep-cuda.so", NULL, 0);
}

enum ls_status ls_backend_open(const char *name, const struct ls_backend **backend)
{
    if (strcmp(name, "cuda") == 0 || (strcmp(name, "auto") == 0 && card_there()))
        return load_cuda(backend);
    *backend = ls_backend_find(name);
    return *backend ? LS_OK : ls_fail(LS_USAGE, "--backend %s: this program was built without it", name);
}

const struct ls_backend *ls_backend_find(const char *name)
{
    const struct ls_backend *cuda;
    for (int i = 0; ls_backends[i]; i++)
        if (strcmp(name, "auto") == 0 || strcmp(ls_backends[i]->name, name) == 0)
            return ls_backends[i];
    if (strcmp(name, "cuda") == 0 && ls_module_find("lockstep-cuda.so", NULL, 0) && load_cuda(&cuda) == LS_OK)
        return cuda;
    return NULL;
}

bool ls_start_needed(const struct ls_tensor *t)
{
    return t->init.kind != LS_INIT_CONST || t->init.value != 0.0f;
}

/* Filter i passes input channel i on: its middle is 1 there, and 0 elsewhere. Further filters stay as they are. */
static void set_identity(const struct ls_shape *w, float *values)
{
    int64_t window = w->dim[2] * w->dim[3], each = w->dim[1] * window;
    int64_t middle = w->dim[2] / 2 * w->dim[3] + w->dim[3] / 2;
    for (int64_t i = 0; i < w->dim[0] && i < w->dim[1]; i++) {
        memset(values + i * each, 0, (size_t)each * sizeof *values);
        values[i * each + i * window + middle] = 1;
    }
}

/* Streams are numbered by the parameter's place among the parameters, so that a run's start depends on the seed and
 * the model alone. */
void ls_start_values(const struct ls_tensor *t, uint64_t number, uint64_t seed, float *values)
{
    int64_t count = ls_shape_count(&t->shape);
    uint64_t stream = ls_random_stream(LS_RANDOM_INIT, number, 0, 0);
    switch (t->init.kind) {
    case LS_INIT_UNIFORM:
        ls_random_fill_uniform(seed, stream, -t->init.value, t->init.value, count, values);
        break;
    case LS_INIT_IDENTITY:
        ls_random_fill_uniform(seed, stream, -t->init.value, t->init.value, count, values);
        set_identity(&t->shape, values);
        break;
    case LS_INIT_WHITEN: /* until the images are known */
        ls_random_fill_uniform(seed, stream, -1, 1, count, values);
        break;
    case LS_INIT_NORMAL:
        ls_random_fill_normal(seed, stream, t->init.value, count, values);
        break;
    default:
        for (int64_t i = 0; i < count; i++)
            values[i] = t->init.value;
    }
}

enum ls_status ls_program_init_params(const struct ls_backend *b, struct ls_program *p, const struct ls_graph *g,
                                      uint64_t seed)
{
    enum ls_status st = LS_OK;
    uint64_t number = 0;
    for (int t = 0; t < g->n_tensors && st == LS_OK; t++) {
        const struct ls_tensor *tensor = &g->tensors[t];
        if (!ls_role_kept(tensor->role))
            continue;
        uint64_t own = number++;
        if (!ls_start_needed(tensor))
            continue;
        float *values = ls_alloc((size_t)ls_shape_count(&tensor->shape), sizeof *values);
        if (!values)
            return LS_FAILED;
        ls_start_values(tensor, own, seed, values);
        st = b->write(p, t, values);
        ls_free(values);
    }
    return st;
}
