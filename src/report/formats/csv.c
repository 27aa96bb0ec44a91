#include "report/formats/csv.h"

#include <stdbool.h>
#include <string.h>

void ls_csv_put(const char *text, FILE *out)
{
    bool quote = strpbrk(text, ",\"\r\n") || *text == ' ';
    fputs(quote ? "\"" : "", out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"')
            putc('"', out);
        if ((c < ' ' && !strchr("\r\n\t", c)) || c == 0x7f) /* must not change the terminal */
            fprintf(out, "\\x%02x", c);
        else
            putc(c, out);
    }
    fputs(quote ? "\"" : "", out);
}
