/* UTF-8. File names may contain any bytes; JSON and terminals require valid UTF-8. */
#ifndef LS_BASE_UTF8_H
#define LS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool ls_utf8_valid(const char *text);
/* Returns the number of characters. */
int ls_utf8_length(const char *text);
/* Copies text to room with every invalid byte written as \xHH. Truncates at a character boundary. Returns room. */
const char *ls_utf8_escape(const char *text, char *room, size_t size);
/* Like ls_utf8_escape, but also escapes control characters (C0 except tab, DEL, C1): a file name must not move the cursor,
 * change the terminal or start a new line. */
const char *ls_utf8_printable(const char *text, char *room, size_t size);
enum { LS_PRINTABLE_SIZE = 1024 }; /* room for most names, escaped */

#endif
