#include "exec/tta.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Reads one word: mirror, shift:PIXELS or least:SHARE. */
static bool parse_word(const char *word, size_t length, struct ls_tta *tta)
{
    char *end = NULL;
    if (length == 6 && strncmp(word, "mirror", 6) == 0) {
        tta->views.mirror = true;
        return true;
    }
    if (strncmp(word, "shift:", 6) == 0) {
        long pixels = strtol(word + 6, &end, 10);
        tta->views.shift = (int32_t)(pixels >= 1 && pixels <= 1024 ? pixels : 0);
        return tta->views.shift > 0 && end == word + length;
    }
    if (strncmp(word, "least:", 6) != 0)
        return false;
    tta->least = strtod(word + 6, &end);
    return tta->least > 0 && tta->least < 1 && end == word + length;
}

enum ls_status ls_tta_parse(const char *text, struct ls_tta *tta)
{
    *tta = (struct ls_tta){.least = 1};
    for (const char *at = text; at && *at;) {
        size_t length = strcspn(at, ",");
        if (!parse_word(at, length, tta))
            return ls_fail(LS_USAGE,
                           "--tta %s: expected mirror, shift:PIXELS (1 to 1024), or mirror,shift:PIXELS, and with a "
                           "comma least:SHARE (above 0, below 1)",
                           text);
        at += length + (at[length] == ',');
    }
    if (tta->least < 1 && ls_views_count(&tta->views) == 1)
        return ls_fail(LS_USAGE, "--tta %s: which views the least certain images get is missing: mirror, shift:PIXELS",
                       text);
    return LS_OK;
}
