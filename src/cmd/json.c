#include "cmd/json.h"

#include <stdbool.h>
#include <stdio.h>

/* jansson passes text that begins and ends at character boundaries. */
static int put(const char *bytes, size_t size, void *context)
{
    FILE *out = context;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)bytes[i], next = i + 1 < size ? (unsigned char)bytes[i + 1] : 0;
        bool second = c == 0xc2 && next >= 0x80 && next < 0xa0;
        if (c == 0x7f || second)
            fprintf(out, "\\u%04x", second ? next : c);
        else
            putc(c, out);
        i += second;
    }
    return ferror(out) ? -1 : 0;
}

int ls_json_write(const json_t *value, size_t flags, FILE *out)
{
    return json_dump_callback(value, put, out, flags);
}

int ls_json_print(const json_t *value, size_t flags)
{
    return ls_json_write(value, flags, stdout);
}
