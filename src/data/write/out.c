#include "data/write/write.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 1 << 20 };

static enum ls_status refuse(const struct ls_out *out)
{
    return ls_fail(LS_FAILED, "%s: writing failed after %llu bytes: %s", out->path, (unsigned long long)out->bytes,
                   strerror(errno));
}

enum ls_status ls_out_open(struct ls_out *out, char *path)
{
    *out = (struct ls_out){.path = path};
    if (!path)
        return LS_FAILED;
    out->file = fopen(path, "wbxe");
    if (!out->file)
        return ls_fail(LS_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    setvbuf(out->file, NULL, _IOFBF, BUFFER);
    return LS_OK;
}

enum ls_status ls_out_put(struct ls_out *out, const void *data, size_t size)
{
    if (size > 0 && fwrite(data, 1, size, out->file) != size)
        return refuse(out);
    out->bytes += size;
    return LS_OK;
}

enum ls_status ls_out_align(struct ls_out *out, size_t align)
{
    static const char zeros[4096];
    size_t over = out->bytes % align;
    return over ? ls_out_put(out, zeros, align - over) : LS_OK;
}

enum ls_status ls_out_close(struct ls_out *out)
{
    bool good = fflush(out->file) == 0 && fsync(fileno(out->file)) == 0;
    enum ls_status st = good ? LS_OK : refuse(out);
    if (fclose(out->file) != 0 && good)
        st = refuse(out);
    out->file = NULL;
    return st;
}

void ls_out_release(struct ls_out *out)
{
    if (out->file)
        fclose(out->file);
    ls_free(out->path);
    *out = (struct ls_out){0};
}
