/* Some virtual machines advertise AMX and fault on it. A child process tries a product of oneDNN that uses AMX. */
#include "backend/onednn/dnn.h"

#include <cpuid.h>
#include <omp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static bool amx_advertised(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 24));
}

/* A small bf16 product, which is where oneDNN uses AMX; runs in a child that may die of it. Where ONEDNN_MAX_CPU_ISA leaves AMX
 * out, there is nothing to try, and no limit of ours may take the place of that one. Asking settles the limit, so only the
 * child asks. */
static int try_bf16(void)
{
    if ((dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) != dnnl_cpu_isa_avx512_core_amx)
        return 0;
    int64_t src[] = {64, 64}, wei[] = {64, 64};
    struct dnn d = {0};
    struct dnn_md md = {0};
    struct dnn_pd list[1] = {{0}};
    struct dnn_prim prim;
    static char room[1 << 20] __attribute__((aligned(64)));
    static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    if (dnn_open(&d) != LS_OK || dnn_md_init(&md, 2, src, LS_BF16, DNN_PLAIN) != LS_OK)
        return 1;
    struct dnn_spec spec = {.kind = DNN_DENSE, .rank = 2, .w_rank = 2, .dtype = LS_BF16, .src_md = &md, .dst_md = &md};
    memcpy(spec.src, src, sizeof src);
    memcpy(spec.dst, src, sizeof src);
    memcpy(spec.wei, wei, sizeof wei);
    if (dnn_list(&d, &spec, list, 1) != 1 || dnn_prim_init(&d, list, args, 4, &prim) != LS_OK)
        return 1;
    for (int i = 0; i < prim.n_args; i++)
        dnn_prim_point(&prim, prim.args[i].arg, room + i * (1 << 17));
    return dnn_prim_run(&d, &prim) != LS_OK;
}

static bool amx_works(void)
{
    if (!amx_advertised())
        return true;
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        static const int deadly[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
        for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
            signal(deadly[i], SIG_DFL); /* the child must die of it, whatever its parent does */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        omp_set_num_threads(1); /* a forked child has none of its parent's threads to wait for */
        alarm(20);
        _exit(try_bf16());
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static enum dnn_amx guard_amx(void)
{
    if (amx_works())
        return DNN_AMX_FINE;
    return dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16) == dnnl_success ||
                   !(dnnl_get_effective_cpu_isa() & ~dnnl_cpu_isa_avx512_core_bf16)
               ? DNN_AMX_OFF
               : DNN_AMX_FAULTS;
}

/* oneDNN's instruction set is settled once in a process, and so is this. */
enum dnn_amx dnn_guard_amx(void)
{
    static _Atomic int known = -1;
    if (known < 0)
        known = (int)guard_amx();
    return (enum dnn_amx)known;
}
