/* Any bytes as a configuration file: refused, or read into options that can be written and read again. */
#include "base/log.h"
#include "config/options.h"
#include "config/table.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_options o, again;
    char *text = NULL;
    size_t length = 0;
    ls_log_mute(1);
    if (ls_options_default(&o) != LS_OK || ls_options_default(&again) != LS_OK)
        return 0;
    bool model = ls_yaml_is_model((const char *)data, size);
    if (ls_options_yaml(&o, "fuzz.yaml", (const char *)data, size, NULL) == LS_OK) {
        if (model)
            abort();
        FILE *out = open_memstream(&text, &length);
        enum ls_status written = ls_options_write(&o, LS_CMD_TRAIN, out);
        fclose(out);
        if (written == LS_OK && ls_options_yaml(&again, "again.yaml", text, length, NULL) != LS_OK)
            abort();
        free(text);
    }
    ls_options_release(&o);
    ls_options_release(&again);
    return 0;
}
