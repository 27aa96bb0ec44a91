/* Any bytes as metrics.jsonl: the records do not depend on the pieces in which the bytes come. The first byte is the size of
 * a piece. */
#include "base/log.h"
#include "report/metrics/metrics_reader.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct digest {
    uint64_t records, sum;
};

static enum ls_status take(const struct ls_record *r, void *context)
{
    struct digest *d = context;
    uint64_t bits;
    if (r->kind == LS_RECORD_OTHER || r->step < 0 || memchr(r->host, 0, sizeof r->host) == NULL)
        abort();
    memcpy(&bits, &r->loss, sizeof bits);
    d->records++;
    d->sum = d->sum * 31 + bits + (uint64_t)r->step + (uint64_t)r->n_collectives;
    (void)ls_record_time(r->time);
    return LS_OK;
}

static struct ls_metrics_tally read_pieces(const char *bytes, size_t size, size_t piece, struct digest *d)
{
    struct ls_metrics_reader m;
    if (ls_metrics_reader_open(&m, NULL) != LS_OK)
        abort();
    for (size_t at = 0; at < size; at += piece)
        if (ls_metrics_reader_feed(&m, bytes + at, size - at < piece ? size - at : piece, take, d) != LS_OK)
            abort();
    if (ls_metrics_reader_finish(&m, take, d) != LS_OK)
        abort();
    struct ls_metrics_tally tally = m.tally;
    ls_metrics_reader_close(&m);
    return tally;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct digest whole = {0}, pieces = {0};
    ls_log_mute(1);
    if (size < 2)
        return 0;
    const char *bytes = (const char *)data + 1;
    struct ls_metrics_tally a = read_pieces(bytes, size - 1, size, &whole);
    struct ls_metrics_tally b = read_pieces(bytes, size - 1, 1 + (size_t)data[0], &pieces);
    if (whole.records != pieces.records || whole.sum != pieces.sum || a.broken != b.broken || a.is_cut != b.is_cut ||
        a.lines != b.lines)
        abort();
    return 0;
}
