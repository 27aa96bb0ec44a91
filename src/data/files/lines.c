#include "data/files/lines.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>

#define MAX_BYTES ((size_t)256 << 20)

/* Counts the lines; if `line` is given, also splits them. */
static int cut(char *text, size_t size, char **line)
{
    int n = 0;
    for (size_t start = 0; start < size;) {
        size_t end = start;
        while (end < size && text[end] != '\n')
            end++;
        size_t length = end - start;
        while (length > 0 && (text[start + length - 1] == '\r' || text[start + length - 1] == ' '))
            length--;
        if (length > 0) {
            if (line) {
                text[start + length] = 0;
                line[n] = text + start;
            }
            n++;
        }
        start = end + 1;
    }
    return n;
}

enum ls_status ls_lines_load(const char *path, struct ls_lines *lines)
{
    struct ls_lines l = {0};
    size_t size;
    LS_TRY(ls_file_read(path, MAX_BYTES, &l.text, &size));
    enum ls_status st = LS_OK;
    if (memchr(l.text, 0, size))
        st = ls_fail(LS_BAD_INPUT, "%s: not a text file: a zero byte at %zu", path, strlen(l.text));
    else {
        l.count = cut(l.text, size, NULL);
        l.line = ls_alloc((size_t)l.count + 1, sizeof *l.line);
        if (l.line)
            cut(l.text, size, l.line);
        else
            st = LS_FAILED;
    }
    if (st != LS_OK)
        ls_lines_release(&l);
    else
        *lines = l;
    return st;
}

void ls_lines_release(struct ls_lines *lines)
{
    ls_free(lines->line);
    ls_free(lines->text);
    *lines = (struct ls_lines){0};
}

char *ls_lines_field(char **rest)
{
    char *field = *rest;
    if (!field)
        return NULL;
    char *tab = strchr(field, '\t');
    if (tab)
        *tab = 0;
    *rest = tab ? tab + 1 : NULL;
    return field;
}
