/* AMX is usable when the processor has it, Linux gives this process the registers, and a trial in a child process survives:
 * some virtual machines advertise AMX and fault on it. */
#include "backend/onednn/kernels/kernels.h"

#include <cpuid.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool advertised(void)
{
    enum { AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE);
}

/* The registers are large, so Linux gives them only to a process that asks. */
static bool permitted(void)
{
    enum { ASK = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}

/* 1 x 1 + 1 x 1 in every lane of one small tile. */
static bool multiplies(void)
{
    static const unsigned char sizes[64] = {
        [0] = 1 /* palette */, [16] = 4, [18] = 4, [20] = 4, [48] = 1, [49] = 1, [50] = 1};
    static const unsigned short ones[2] = {0x3f80, 0x3f80};
    float sum = 0;
    __asm__ volatile("ldtilecfg (%3)\n\t"
                     "tilezero %%tmm0\n\t"
                     "tileloadd (%0,%1,1), %%tmm1\n\t"
                     "tileloadd (%0,%1,1), %%tmm2\n\t"
                     "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
                     "tilestored %%tmm0, (%2,%1,1)\n\t"
                     "tilerelease"
                     :
                     : "r"(ones), "r"(4L), "r"(&sum), "r"(sizes)
                     : "memory");
    return sum == 2.0f;
}

static bool trial(void)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGILL, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        _exit(!multiplies());
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool ls_amx_usable(void)
{
    static _Atomic int known = -1;
    if (known < 0)
        known = advertised() && permitted() && trial();
    return known == 1;
}
