/* What comes over a connection at a meeting: any bytes as frames of limits that vary, and as the list of addresses. */
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_frames(const uint8_t *data, size_t size, size_t limit)
{
    int ends[2];
    struct ls_wire w;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return;
    ls_wire_init(&w, ends[0]);
    w.limit = limit;
    for (size_t at = 0; at < size;) { /* in pieces, as a network may cut them */
        size_t piece = size - at < 7 ? size - at : 7;
        if (send(ends[1], data + at, piece, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)piece)
            break;
        at += piece;
        enum ls_wire_state state = ls_wire_read(&w);
        if (state == LS_WIRE_JUNK || state == LS_WIRE_GONE)
            break;
        if (state == LS_WIRE_FRAME && (w.body[w.length] != 0 || (w.length > limit && w.kind != LS_FRAME_REFUSE)))
            abort();
    }
    ls_wire_release(&w);
    close(ends[1]);
}

static void read_table(const uint8_t *data, size_t size)
{
    bool whole;
    struct ls_rendezvous m = {.size = size > 0 ? 1 + data[0] % 8 : 1};
    m.address = ls_alloc((size_t)m.size + 1, sizeof *m.address);
    if (!m.address)
        return;
    if (size > 0 && ls_rendezvous_read_table(&m, data + 1, size - 1, &whole) == LS_OK && whole) {
        size_t sum = 1;
        for (int i = 0; i < m.size; i++)
            sum += 4 + m.address[i].bytes;
        if (sum != size)
            abort();
    }
    for (int i = 0; i < m.size; i++)
        ls_free(m.address[i].data);
    ls_free(m.address);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_log_mute(1);
    read_frames(data, size, 72);
    read_frames(data, size, 4096);
    read_table(data, size);
    return 0;
}
