#define _GNU_SOURCE
#include "base/files/mapped.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#define NOT_GUARDED (-1)

/* The mappings that the handler of SIGBUS finds a page in. A handler gets no argument of ours, so they are global. */
enum { MOST = 64 };
static struct ls_mapped *_Atomic guarded[MOST];

static void mend(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (int i = 0; i < MOST; i++) {
        struct ls_mapped *m = atomic_load(&guarded[i]);
        uintptr_t start = m ? (uintptr_t)m->bytes : 0;
        if (!m || at < start || at - start >= m->size)
            continue;
        uintptr_t page = at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
        atomic_store(&m->is_torn, true);
        if (mmap((void *)page, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
            return;
    }
    signal(number, SIG_DFL); /* not ours: the access is repeated and ends the process */
}

/* Another part of the process may have put its own handler there since. */
static void install(void)
{
    struct sigaction act = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}

static int guard(struct ls_mapped *m)
{
    install();
    for (int i = 0; i < MOST; i++) {
        struct ls_mapped *none = NULL;
        if (atomic_compare_exchange_strong(&guarded[i], &none, m))
            return i;
    }
    return NOT_GUARDED;
}

bool ls_mapped_open(struct ls_mapped *m, const char *path, char why[LS_FILE_WHY])
{
    size_t size;
    int fd = ls_file_open(path, &size, why);
    *m = (struct ls_mapped){.slot = NOT_GUARDED};
    if (fd < 0)
        return false;
    void *bytes = size > 0 ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (bytes == MAP_FAILED)
        snprintf(why, LS_FILE_WHY, "cannot be mapped into memory: %s", strerror(errno));
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    m->bytes = bytes;
    m->size = size;
    m->slot = size > 0 ? guard(m) : NOT_GUARDED;
    return true;
}

void ls_mapped_release(struct ls_mapped *m)
{
    if (m->bytes) {
        if (m->slot != NOT_GUARDED)
            atomic_store(&guarded[m->slot], NULL);
        munmap((void *)(uintptr_t)m->bytes, m->size);
    }
    m->bytes = NULL;
    m->size = 0;
}

bool ls_mapped_wait(struct ls_mapped *m, size_t offset, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = offset & ~(page - 1);
    void *start = (void *)(uintptr_t)(m->bytes + first);
    if (atomic_load(&m->is_torn))
        return false;
    if (size == 0 || madvise(start, size + (offset - first), MADV_POPULATE_READ) == 0)
        return true;
    if (errno == EFAULT || errno == EIO)
        return false;
    madvise(start, size + (offset - first), MADV_WILLNEED); /* an older kernel */
    return true;
}
