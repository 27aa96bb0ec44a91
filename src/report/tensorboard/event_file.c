#define _GNU_SOURCE
#include "report/tensorboard/event_file.h"
#include "base/system/clock.h"
#include "base/files/crc32c.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3 };
static const char prefix[] = "events.out.tfevents.";

/* --- names ------------------------------------------------------------------------------------------------ */

/* The largest number in the names of the event files of a folder; -1: there are none. */
static int64_t newest(const char *folder)
{
    int64_t largest = -1;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0)
            continue;
        int64_t number = strtoll(entry->d_name + sizeof prefix - 1, NULL, 10);
        largest = number > largest ? number : largest;
    }
    if (dir)
        closedir(dir);
    return largest;
}

static char *name_of(const char *folder, int64_t number)
{
    char host[256] = "host";
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        *c = *c == '/' ? '-' : *c;
    return ls_format("%s/%s%010" PRId64 ".%s.%ld.%lu", folder, prefix, number, host, (long)getpid(),
                     (unsigned long)getuid());
}

static enum ls_status put_version(struct ls_event_file *f)
{
    struct ls_pb pb = {0};
    ls_event_begin(&pb, 0);
    ls_pb_text(&pb, EVENT_VERSION, "brain.Event:2");
    enum ls_status st = ls_event_file_put(f, &pb, true);
    ls_pb_release(&pb);
    return st;
}

enum ls_status ls_event_file_open(struct ls_event_file *f, const char *folder, bool *others)
{
    *f = (struct ls_event_file){0};
    LS_TRY(ls_dir_make(folder));
    int64_t last = newest(folder), now = (int64_t)time(NULL);
    f->path = name_of(folder, now > last ? now : last + 1);
    enum ls_status st = f->path ? ls_file_append(f->path, &f->file) : LS_FAILED;
    if (st == LS_OK)
        st = put_version(f);
    if (st != LS_OK)
        ls_event_file_close(f);
    *others = last >= 0;
    return st;
}

/* --- events ----------------------------------------------------------------------------------------------- */

void ls_event_begin(struct ls_pb *pb, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    ls_pb_double(pb, EVENT_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    ls_pb_whole(pb, EVENT_STEP, step);
}

static enum ls_status failed(const struct ls_event_file *f)
{
    return ls_fail(LS_FAILED, "%s: writing failed%s%s", f->path, errno ? ": " : "", errno ? strerror(errno) : "");
}

static enum ls_status flush(struct ls_event_file *f)
{
    errno = 0;
    f->flushed = ls_now();
    return fflush(f->file) != 0 || ferror(f->file) ? failed(f) : LS_OK;
}

static void put_little(FILE *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc_unlocked((int)(value >> 8 * i & 255), out);
}

enum ls_status ls_event_file_put(struct ls_event_file *f, struct ls_pb *pb, bool now)
{
    uint8_t length[8];
    if (pb->failed)
        return LS_FAILED; /* reported by the allocation */
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)pb->size >> 8 * i);
    fwrite(length, 1, sizeof length, f->file);
    put_little(f->file, ls_crc32c_masked(length, sizeof length), 4);
    fwrite(pb->bytes, 1, pb->size, f->file);
    put_little(f->file, ls_crc32c_masked(pb->bytes, pb->size), 4);
    ls_pb_clear(pb);
    return now || ls_now() - f->flushed >= 1 || ferror(f->file) ? flush(f) : LS_OK;
}

enum ls_status ls_event_file_sync(struct ls_event_file *f)
{
    if (!f->file)
        return LS_OK;
    LS_TRY(flush(f));
    return fdatasync(fileno(f->file)) == 0 || errno == EINVAL ? LS_OK : failed(f);
}

enum ls_status ls_event_file_close(struct ls_event_file *f)
{
    enum ls_status st = LS_OK;
    errno = 0;
    if (f->file && fclose(f->file) != 0)
        st = failed(f);
    ls_free(f->path);
    *f = (struct ls_event_file){0};
    return st;
}
