/* The list of addresses that rank 0 sends to all, after its proof and the nonce of the key: for each rank a length (4
 * bytes) and an address. */
#include "base/memory.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/wire.h"

#include <string.h>

enum ls_status ls_rendezvous_set_address(struct ls_rendezvous *m, int rank, const void *address, size_t bytes)
{
    void *copy = ls_alloc(bytes + 1, 1);
    if (!copy)
        return LS_FAILED;
    memcpy(copy, address, bytes);
    ls_free(m->address[rank].data);
    m->address[rank] = (struct ls_address){copy, bytes};
    return LS_OK;
}

enum ls_status ls_rendezvous_read_table(struct ls_rendezvous *m, const uint8_t *list, size_t size, bool *whole)
{
    *whole = false;
    for (int i = 0; i < m->size; i++) {
        if (size < 4 || ls_get32(list) > size - 4)
            return LS_OK;
        size_t bytes = ls_get32(list);
        LS_TRY(ls_rendezvous_set_address(m, i, list + 4, bytes));
        list += 4 + bytes;
        size -= 4 + bytes;
    }
    *whole = size == 0;
    return LS_OK;
}
