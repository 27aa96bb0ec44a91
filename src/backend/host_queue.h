/* The queue of a backend whose memory is the host's and whose run returns when its work is over. Every wait is over at
 * once, and nothing is copied that lies in place already. */
#ifndef LS_BACKEND_HOST_QUEUE_H
#define LS_BACKEND_HOST_QUEUE_H

#include "backend/backend.h"

enum ls_status ls_host_take(size_t bytes, void **memory);
void ls_host_give(void *memory, size_t bytes);
void ls_host_taken(size_t *now, size_t *most);
void ls_host_pin(void *host, size_t bytes);
void ls_host_unpin(void *host);
enum ls_status ls_host_copy(struct ls_program *p, float *to, const float *from, size_t count);
enum ls_status ls_host_add(struct ls_program *p, float *to, const float *other, size_t count);
enum ls_status ls_host_clear(struct ls_program *p, float *to, size_t count);
enum ls_status ls_host_columns(struct ls_program *p, void *to, size_t to_step, const void *from, size_t from_step,
                               size_t bytes, size_t rows);
enum ls_status ls_host_fetch(struct ls_program *p, int mark, float *host, const float *from, size_t count);
enum ls_status ls_host_arrived(struct ls_program *p, int mark);
enum ls_status ls_host_ask(struct ls_program *p, int slot);
enum ls_status ls_host_get_scale(struct ls_program *p, struct ls_loss_scale *scale);
enum ls_status ls_host_set_scale(struct ls_program *p, const struct ls_loss_scale *scale);

/* The initialiser of such a queue. `read_results` is its function `results`: it points at the losses and ranks of the last
 * run, which live until the next one. */
#define LS_HOST_QUEUE(read_results)                                                                                    \
    {                                                                                                                  \
        .take = ls_host_take, .give = ls_host_give, .taken = ls_host_taken, .pin = ls_host_pin,                        \
        .unpin = ls_host_unpin, .copy = ls_host_copy, .add = ls_host_add, .clear = ls_host_clear,                      \
        .columns = ls_host_columns, .fetch = ls_host_fetch, .arrived = ls_host_arrived, .send = ls_host_copy,          \
        .ask = ls_host_ask, .results = (read_results), .get_scale = ls_host_get_scale, .set_scale = ls_host_set_scale, \
    }

#endif
