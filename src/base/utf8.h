/* Names from a file system may hold any bytes; JSON and terminals want UTF-8. */
#ifndef LS_BASE_UTF8_H
#define LS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool ls_utf8_valid(const char *text);
/* In characters: every byte but those that continue one. */
int ls_utf8_length(const char *text);
/* The text with every byte that is not part of UTF-8 spelled \xHH; cut off where room ends. Returns room. */
const char *ls_utf8_escape(const char *text, char *room, size_t size);
/* The same for a terminal: control characters (C0 but the tab, DEL, C1) are spelled, too, so that no name can move the cursor, change
 * the terminal or begin a line. */
const char *ls_utf8_printable(const char *text, char *room, size_t size);
enum { LS_PRINTABLE_SIZE = 1024 }; /* room for most names */

#endif
