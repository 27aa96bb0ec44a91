#include "launch/variables.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

const char *ls_variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

enum ls_status ls_variable_number(const char *name, int *value)
{
    const char *text = ls_variable(name);
    if (!text)
        return LS_OK;
    char *end = NULL;
    errno = 0;
    long n = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
    if (!end || *end || errno || n > 1 << 30)
        return ls_fail(LS_USAGE, "%s: '%s' is not a whole number of 0 or more", name, text);
    *value = (int)n;
    return LS_OK;
}
