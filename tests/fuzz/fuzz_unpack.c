/* Archives from the network: each input is unpacked as .tar.gz and as .zip into a folder that is then removed. */
#define _GNU_SOURCE
#include "base/files/file.h"
#include "base/log.h"
#include "data/fetch/unpack.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool never(void)
{
    return false;
}

static void ignore(void *context, const char *what, int64_t done, int64_t total)
{
    (void)context, (void)what, (void)done, (void)total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum ls_status (*const readers[])(struct ls_unpack *) = {ls_untar, ls_unzip};
    char archive[64];
    int fd = memfd_create("archive", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(archive, sizeof archive, "/proc/self/fd/%d", fd);
    ls_log_mute(true);
    for (int i = 0; i < 2; i++) {
        char folder[] = "/tmp/lockstep-unpack-XXXXXX";
        if (!mkdtemp(folder))
            abort();
        struct ls_unpack u = {.archive = archive, .folder = folder, .is_stopped = never, .progress = ignore, .fd = -1};
        readers[i](&u);
        if (u.fd >= 0 || ls_dir_remove(folder) != LS_OK)
            abort();
    }
    ls_log_mute(false);
    close(fd);
    return 0;
}
