/* Messages of other folders name options of the command line (--num-nodes). A program that uses the library sets members of
 * struct lockstep_options (num_nodes) or variables instead, so option names are replaced. */
#include "config/table.h"
#include "lib/handle.h"

#include <string.h>

/* Returns the length of the option name at text, or 0. */
static size_t option_at(const char *text)
{
    char name[32];
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz-");
    if (n == 0 || n >= sizeof name)
        return 0;
    memcpy(name, text, n);
    name[n] = 0;
    return ls_option_find(name) ? n : 0;
}

/* Text in backquotes is a command of `lockstep` and is not changed. */
void lib_rename_options(char *text)
{
    char *to = text;
    bool quoted = false;
    for (const char *from = text; *from;) {
        size_t n = !quoted && strncmp(from, "--", 2) == 0 ? option_at(from + 2) : 0;
        quoted ^= *from == '`';
        if (n == 0) {
            *to++ = *from++;
            continue;
        }
        for (from += 2; n > 0; n--, from++)
            *to++ = *from == '-' ? '_' : *from;
    }
    *to = 0;
}
