/* Any bytes as a tar file of samples: refused, or entries that lie within the file. */
#define _GNU_SOURCE
#include "base/log.h"
#include "data/formats/tar.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("tar", MFD_CLOEXEC);
    ls_log_mute(1);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        close(fd);
        return 0;
    }
    struct ls_shard_scan s = {.path = "input.tar", .fd = fd, .size = size};
    enum ls_status st = ls_tar_scan(&s);
    if (st != LS_OK && !s.why[0])
        __builtin_trap();
    for (int64_t i = 0; i < s.count; i++)
        if (s.entry[i].offset > size || s.entry[i].bytes > size - s.entry[i].offset || s.entry[i].name >= s.used ||
            s.label[i] >= s.used || !s.text[s.label[i]])
            __builtin_trap();
    ls_scan_release(&s);
    close(fd);
    return 0;
}
