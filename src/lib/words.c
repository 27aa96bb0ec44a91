/* Messages of other folders speak of options as `lockstep` has them (--num-nodes). A program that uses the library sets
 * them as fields of struct lockstep_options (num_nodes) or as variables. */
#include "config/table.h"
#include "lib/handle.h"

#include <string.h>

/* The length of an option's name that begins here, 0: none does. */
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

/* What stands in backquotes is a command of `lockstep` and stays. */
void lib_reword(char *text)
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
