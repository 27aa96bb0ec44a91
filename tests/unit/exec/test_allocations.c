/* A training step allocates nothing, and a plan moves no activation from one layout to another.
 *
 * Every allocation of the process is seen, with who asked for it. Lockstep asks for nothing in a step. oneDNN does:
 * each execute call keeps a list of its arguments, and its gemm takes room to pack matrices; both are returned within
 * the call, and are its own affair. */
#define _GNU_SOURCE
#include "backend/backend.h"
#include "graph/ops.h"
#include "model/model.h"
#include "optim/optim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <dlfcn.h>
#include <stdio.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHED 0 /* the sanitizers have an allocator of their own */
#else
#define WATCHED 1
#endif

static atomic_bool watching;
static atomic_int ours, theirs; /* calls from this program's own code, and from libraries */

#if WATCHED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
int posix_memalign(void **p, size_t align, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *p, size_t size);
void *aligned_alloc(size_t align, size_t size);

static void see(const void *caller)
{
    Dl_info from, here;
    if (!atomic_load(&watching) || !dladdr(caller, &from) || !dladdr((void *)(uintptr_t)&see, &here))
        return;
    atomic_fetch_add(from.dli_fbase == here.dli_fbase ? &ours : &theirs, 1);
}
#define SEE see(__builtin_return_address(0))
void *malloc(size_t size)
{
    SEE;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    SEE;
    return __libc_calloc(count, size);
}
void *realloc(void *p, size_t size)
{
    SEE;
    return __libc_realloc(p, size);
}
void *aligned_alloc(size_t align, size_t size)
{
    SEE;
    return __libc_memalign(align, size);
}
int posix_memalign(void **p, size_t align, size_t size)
{
    SEE;
    *p = __libc_memalign(align, size);
    return *p ? 0 : 12;
}
#endif

enum { BATCH = 4, SIZE = 64, CLASSES = 10 };

struct net {
    struct ls_graph g;
    struct ls_store *store;
    struct ls_program *p;
    void *arena, *grads;
    size_t arena_bytes, grad_bytes;
    float images[BATCH * 3 * SIZE * SIZE];
    int32_t labels[BATCH];
};

static const struct ls_backend *backend(void)
{
    const struct ls_backend *b = ls_backend_find("onednn");
    assert_non_null(b);
    return b;
}

static void open_net(struct net *n, const char *model)
{
    struct ls_model_request request = {.model = model,
                                       .size = {BATCH, 3, SIZE, SIZE, CLASSES},
                                       .training = true,
                                       .dtype = LS_F32,
                                       .loss = "xent",
                                       .dropout = -1};
    struct ls_options o = {.optimizer = (char[]){"sgd"}, .momentum = 0.9, .weight_decay = 1e-4};
    struct ls_backend_options options = {.threads = 2, .reuse = true};
    ls_graph_init(&n->g);
    assert_int_equal(ls_model_build(&request, &n->g), LS_OK);
    assert_int_equal(ls_graph_fuse(&n->g, true), LS_OK);
    assert_int_equal(ls_graph_backward(&n->g), LS_OK);
    assert_int_equal(ls_optim_update(&n->g, &o, true), LS_OK);
    n->store = ls_store_new(backend());
    assert_non_null(n->store);
    assert_int_equal(backend()->prepare(&options, &n->g, n->store, &n->p), LS_OK);
    n->arena_bytes = backend()->arena_bytes(n->p);
    assert_int_equal(ls_region_map(n->arena_bytes, &n->arena), LS_OK);
    n->grad_bytes = backend()->grad_bytes(n->p);
    assert_int_equal(ls_region_map(n->grad_bytes, &n->grads), LS_OK);
    assert_int_equal(backend()->bind(n->p, n->arena, n->grads), LS_OK);
    assert_int_equal(ls_program_init_params(backend(), n->p, &n->g, 1), LS_OK);
    assert_int_equal(backend()->input(n->p, n->g.input, n->images), LS_OK);
    assert_int_equal(backend()->input(n->p, n->g.label, n->labels), LS_OK);
}

static void close_net(struct net *n)
{
    backend()->release(n->p);
    ls_region_unmap(n->arena, n->arena_bytes);
    ls_region_unmap(n->grads, n->grad_bytes);
    ls_store_free(n->store);
    ls_graph_release(&n->g);
}

static void step(struct net *n, uint64_t number)
{
    struct ls_run run = {.step = number, .valid = BATCH, .grad_scale = 1.0f / BATCH, .stat_weight = 1.0f, .lr = 0.01f};
    assert_int_equal(backend()->run(n->p, 0, n->g.n_nodes, &run), LS_OK);
}

static void a_step_allocates_nothing(void **state)
{
    static struct net n;
    open_net(&n, *state);
    step(&n, 0); /* the first starts the threads */
    uint64_t calls = ls_memory_calls();
    atomic_store(&ours, 0);
    atomic_store(&theirs, 0);
    atomic_store(&watching, true);
    for (uint64_t s = 1; s < 4; s++)
        step(&n, s);
    atomic_store(&watching, false);
    assert_int_equal(ls_memory_calls(), calls);
    assert_int_equal(atomic_load(&ours), 0);
    if (WATCHED)
        assert_true(atomic_load(&theirs) > 0); /* the watch works */
    close_net(&n);
}

/* Weights may be wanted in another order by the backward pass; activations never are. */
static void activations_are_never_reordered(void **state)
{
    static struct net n;
    open_net(&n, *state);
    for (int i = 0; i < n.g.n_nodes; i++) {
        const struct ls_node *node = &n.g.nodes[i];
        if (node->op != &ls_op_reorder)
            continue;
        const struct ls_tensor *from = &n.g.tensors[node->in[0]], *to = &n.g.tensors[node->out[0]];
        if (from->role != LS_ROLE_PARAM && to->role != LS_ROLE_GRAD)
            fail_msg("%s: %s is reordered before layer %s", (const char *)*state, from->name, node->name);
    }
    close_net(&n);
}

#define MODEL(test, model)                            \
    {                                                 \
#test " (" model ")", test, NULL, NULL, model \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_step_allocates_nothing, "vgg11_bn"),
        MODEL(a_step_allocates_nothing, "resnet18"),
        MODEL(a_step_allocates_nothing, "mobilenet_v2"),
        MODEL(a_step_allocates_nothing, "alexnet"),
        MODEL(activations_are_never_reordered, "lenet"),
        MODEL(activations_are_never_reordered, "alexnet-cntk"),
        MODEL(activations_are_never_reordered, "vgg11"),
        MODEL(activations_are_never_reordered, "resnet50"),
        MODEL(activations_are_never_reordered, "mobilenet_v2"),
    };
    return cmocka_run_group_tests_name("lean", tests, NULL, NULL);
}
