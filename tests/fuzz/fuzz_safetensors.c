/* Any bytes as a safetensors file: refused, or tensors whose every byte can be read. */
#include "base/log.h"
#include "checkpoint/model_card.h"
#include "checkpoint/safetensors.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_safetensors s;
    struct ls_arena strings = {0};
    struct ls_model_card card;
    volatile uint8_t sum = 0;
    ls_log_mute(1);
    if (ls_safetensors_parse(data, size, "fuzz.safetensors", &s) != LS_OK)
        return 0;
    for (int i = 0; i < s.n_tensors; i++) {
        const struct ls_st_tensor *t = &s.tensors[i];
        for (uint64_t k = 0; k < t->bytes; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)t->data)[k]);
        float *values = malloc(t->count * sizeof *values + 1);
        if (values)
            ls_safetensors_f32(t, "fuzz.safetensors", values);
        free(values);
        if (!ls_safetensors_find(&s, t->name))
            abort();
    }
    ls_model_card_read(&s, "fuzz.safetensors", &strings, &card);
    ls_arena_release(&strings);
    ls_safetensors_release(&s);
    return 0;
}
