/* Answers CPUID leaves 0x1D and 0x1E, the sizes of AMX tiles, where a hypervisor hides them: PyTorch's oneDNN reads them
 * and dies of SIGILL without. Preload it:
 *
 *   cc -O1 -shared -fPIC -o amx_leaf.so amx_leaf.c && LD_PRELOAD=./amx_leaf.so python3 torch_cpu.py ... --bf16 --cl
 *
 * The processor traps CPUID (CPUID faulting, flag cpuid_fault of /proc/cpuinfo), and a handler takes its place. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static void trap(int on)
{
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, !on);
}

static void answer(int number, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)r[REG_RIP];
    unsigned leaf = (unsigned)r[REG_RAX], sub = (unsigned)r[REG_RCX], a, b, c, d;
    (void)info;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* no CPUID: a fault of the program */
        signal(number, SIG_DFL);
        return;
    }
    trap(0);
    __cpuid_count(leaf, sub, a, b, c, d);
    trap(1);
    if (leaf == 0 && a < 0x1e)
        a = 0x1e;
    if (leaf == 0x1d)
        a = sub ? 1024u << 16 | 8192 : 1, b = sub ? 8u << 16 | 64 : 0, c = sub ? 16 : 0, d = 0;
    if (leaf == 0x1e)
        a = 0, b = sub ? 0 : 64u << 8 | 16, c = 0, d = 0;
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void)
{
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    trap(1);
}
