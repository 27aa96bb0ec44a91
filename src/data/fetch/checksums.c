#include "data/fetch/checksums.h"
#include "data/files/lines.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { SHA256_DIGITS = 64, MD5_DIGITS = 32 };

/* Splits "HEX  NAME" or "HEX *NAME". Returns the name without its folder, NULL: not such a line. */
static const char *split(const char *line, size_t *digits)
{
    *digits = strspn(line, "0123456789abcdefABCDEF");
    const char *name = line + *digits;
    size_t blanks = strspn(name, " \t");
    if ((*digits != SHA256_DIGITS && *digits != MD5_DIGITS) || blanks == 0)
        return NULL;
    name += blanks;
    name += *name == '*';
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

enum ls_status ls_checksums_find(const char *path, const char *name, char checksum[80])
{
    struct ls_lines lines = {0};
    bool found = false;
    LS_TRY(ls_lines_load(path, &lines));
    enum ls_status st = LS_OK;
    for (int i = 0; i < lines.count && st == LS_OK && !found; i++) {
        size_t digits;
        const char *named = split(lines.line[i], &digits);
        if (!named)
            st = ls_fail(LS_BAD_INPUT,
                         "%s: line %d: expected a checksum of 64 or 32 digits and a file name, found '%.80s'", path,
                         i + 1, lines.line[i]);
        else if ((found = strcmp(named, name) == 0))
            snprintf(checksum, 80, "%s:%.*s", digits == SHA256_DIGITS ? "sha256" : "md5", (int)digits, lines.line[i]);
    }
    if (st == LS_OK && !found)
        st = ls_fail(LS_BAD_INPUT, "%s: no checksum of %s in it", path, name);
    ls_lines_release(&lines);
    return st;
}
