/* Model files: any bytes are either refused or give a graph that prints as a file giving the same one. */
#include "base/log.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

static enum ls_status build(const char *text, size_t length, struct ls_graph *g)
{
    static const struct ls_model_size size = {2, 3, 32, 32, 10};
    struct ls_build b;
    int logits = LS_NONE;
    LS_TRY(ls_build_begin(&b, g, &size, true, LS_F32));
    LS_TRY(ls_model_parse_yaml("fuzz.yaml", text, length, &b, &logits));
    return ls_build_finish(&b, logits, &ls_op_softmax_xent, 0);
}

static char *print(const struct ls_graph *g, size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    if (!out || ls_model_write_yaml(g, "fuzz", out) != LS_OK)
        abort();
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_graph g, again;
    ls_log_mute(1);
    if (build((const char *)data, size, &g) == LS_OK) {
        size_t length, length_again;
        char *text = print(&g, &length);
        if (build(text, length, &again) != LS_OK)
            abort();
        char *text_again = print(&again, &length_again);
        if (length != length_again || memcmp(text, text_again, length) != 0)
            abort();
        free(text_again);
        free(text);
        ls_graph_release(&again);
    }
    ls_graph_release(&g);
    return 0;
}
