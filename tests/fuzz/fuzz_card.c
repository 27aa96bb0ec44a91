/* Any metadata as the card of a model, lines of KEY=VALUE: refused, or a card that can be written and read again. */
#include "base/log.h"
#include "checkpoint/model_card.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 32 };

static int split(char *text, struct ls_st_pair pairs[MOST])
{
    int n = 0;
    for (char *next, *line = text; line && n < MOST; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = 0;
        pairs[n++] = (struct ls_st_pair){line, value};
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_st_pair pairs[MOST], written[LS_MODEL_CARD_PAIRS];
    struct ls_arena strings = {0};
    struct ls_model_card card, again;
    char *text = fuzz_text(data, size);
    ls_log_mute(1);
    if (!text)
        return 0;
    struct ls_safetensors file = {.metadata = pairs, .n_metadata = split(text, pairs)};
    if (ls_model_card_read(&file, "fuzz", &strings, &card) == LS_OK && card.model) {
        struct ls_safetensors copy = {.metadata = written};
        if (ls_model_card_write(&card, &strings, written, &copy.n_metadata) == LS_OK &&
            (ls_model_card_read(&copy, "again", &strings, &again) != LS_OK || again.classes != card.classes))
            abort();
    }
    ls_arena_release(&strings);
    free(text);
    return 0;
}
