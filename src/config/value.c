#include "config/table.h"

#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *field(const struct ls_options *o, const struct ls_option *option)
{
    return (char *)o + option->offset;
}

/* strtoll and related functions skip spaces and accept signs, hex and "nan". An option's number consists of digits
 * only. */
static bool starts_number(const char *text, const char *also)
{
    if (*text && strchr("+-", *text))
        text++;
    return isdigit((unsigned char)*text) || (*text && strchr(also, *text));
}

static enum ls_status parse_whole(const char *where, const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long n = starts_number(text, "") ? strtoll(text, &end, 10) : 0;
    if (!starts_number(text, "") || *end)
        return ls_fail(LS_USAGE, "%s: '%s' is not a whole number", where, text);
    if (errno == ERANGE)
        return ls_fail(LS_USAGE, "%s: %s does not fit in 64 bits", where, text);
    *value = n;
    return LS_OK;
}

static enum ls_status parse_seed(const char *where, const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long n = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (!isdigit((unsigned char)*text) || *end)
        return ls_fail(LS_USAGE, "%s: '%s' is not a whole number of 0 or more", where, text);
    if (errno == ERANGE)
        return ls_fail(LS_USAGE, "%s: %s does not fit in 64 bits", where, text);
    *value = n;
    return LS_OK;
}

static enum ls_status parse_real(const char *where, const char *text, double *value)
{
    char *end;
    bool number = starts_number(text, ".") && !strpbrk(text, "xX");
    double x = number ? strtod(text, &end) : 0;
    if (!number || *end || end == text)
        return ls_fail(LS_USAGE, "%s: '%s' is not a number", where, text);
    if (!isfinite(x))
        return ls_fail(LS_USAGE, "%s: %s is too large", where, text);
    *value = x;
    return LS_OK;
}

static enum ls_status parse_switch(const char *where, const char *text, bool *value)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (int i = 0; i < 4; i++)
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *value = strcmp(text, yes[i]) == 0;
            return LS_OK;
        }
    return ls_fail(LS_USAGE, "%s: '%s' is neither true nor false", where, text);
}

static enum ls_status parse_auto(const char *where, const char *text, enum ls_auto *value)
{
    bool on = false;
    if (strcmp(text, "auto") == 0) {
        *value = LS_AUTO;
        return LS_OK;
    }
    LS_TRY(parse_switch(where, text, &on));
    *value = on ? LS_ON : LS_OFF;
    return LS_OK;
}

enum ls_status ls_parse_input(const char *what, const char *text, int64_t *c, int64_t *h, int64_t *w)
{
    int64_t size[3];
    const char *p = text;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        errno = 0;
        size[i] = isdigit((unsigned char)*p) ? strtoll(p, &end, 10) : 0;
        if (!end || *end != (i < 2 ? 'x' : 0))
            return ls_fail(LS_USAGE, "%s: '%s' is not of the form CxHxW, such as 3x64x64", what, text);
        if (errno == ERANGE || size[i] < 1 || size[i] > 65536)
            return ls_fail(LS_USAGE, "%s: '%s' has a size that is not in 1 to 65536", what, text);
        p = end + 1;
    }
    *c = size[0];
    *h = size[1];
    *w = size[2];
    return LS_OK;
}

static enum ls_status check_range(const struct ls_option *option, const char *where, const char *text, double value)
{
    bool fits = value >= option->low && (option->below ? value < option->high : value <= option->high);
    if (fits || value == strtod(option->missing, NULL))
        return LS_OK;
    return ls_fail(LS_USAGE, "%s: %s is out of range; it must be %g %s %.15g", where, text, option->low,
                   option->below ? "or more and below" : "to", option->high);
}

static enum ls_status check_choice(const struct ls_option *option, const char *where, const char *text)
{
    size_t length = option->head ? strcspn(text, ":") : strlen(text);
    char list[160];
    size_t used = 0;
    for (const char *word = option->choices; *word;) {
        size_t n = strcspn(word, " ");
        if (n == length && strncmp(word, text, n) == 0)
            return LS_OK;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s", used ? ", " : "", (int)n, word);
        word += n + (word[n] == ' ');
    }
    return ls_fail(LS_USAGE, "%s: '%.*s' is not one of %s", where, (int)length, text, list);
}

/* "auto" or "auto:N". */
static enum ls_status set_floor(const struct ls_option *option, const char *where, const char *text, int64_t *value)
{
    int64_t least = 0;
    if (text[4] == ':') {
        LS_TRY(parse_whole(where, text + 5, &least));
        if (least < 1 || (double)least > option->high)
            return ls_fail(LS_USAGE, "%s: %s: the number after auto: must be 1 to %.15g", where, text, option->high);
    } else if (text[4]) {
        return ls_fail(LS_USAGE, "%s: '%s' is neither a whole number nor auto nor auto:N", where, text);
    }
    *value = LS_FLOOR_AUTO - least;
    return LS_OK;
}

static enum ls_status set_whole(const struct ls_option *option, const char *where, const char *text, int64_t *value)
{
    int64_t n = 0;
    if (option->floor && strncmp(text, "auto", 4) == 0)
        return set_floor(option, where, text, value);
    LS_TRY(parse_whole(where, text, &n));
    LS_TRY(check_range(option, where, text, (double)n));
    *value = n;
    return LS_OK;
}

static enum ls_status set_real(const struct ls_option *option, const char *where, const char *text, double *value)
{
    double x = 0;
    LS_TRY(parse_real(where, text, &x));
    LS_TRY(check_range(option, where, text, x));
    *value = x;
    return LS_OK;
}

static enum ls_status set_text(char **value, const char *text)
{
    char *copy = ls_strdup(text);
    if (!copy)
        return LS_FAILED;
    ls_free(*value);
    *value = copy;
    return LS_OK;
}

static enum ls_status set_one(struct ls_options *o, const struct ls_option *option, const char *where, const char *text)
{
    void *value = field(o, option);
    int64_t c, h, w;
    if (!*text && option->alone)
        text = "auto";
    if (!*text && option->value)
        return ls_fail(LS_USAGE, "%s: needs a value (%s: %s)", where, option->value, option->help);
    switch (option->type) {
    case LS_OPTION_WHOLE:
        return set_whole(option, where, text, value);
    case LS_OPTION_SEED:
        return parse_seed(where, text, value);
    case LS_OPTION_REAL:
        return set_real(option, where, text, value);
    case LS_OPTION_SWITCH:
        return parse_switch(where, text, value);
    case LS_OPTION_AUTO:
        return parse_auto(where, text, value);
    case LS_OPTION_SHAPE:
        LS_TRY(ls_parse_input(where, text, &c, &h, &w));
        break;
    case LS_OPTION_TEXT:
        if (option->choices)
            LS_TRY(check_choice(option, where, text));
        break;
    }
    return set_text(value, text);
}

/* The name of a file may contain a comma. */
static bool is_list(const struct ls_option *option, const char *text)
{
    if (option->word && strcmp(text, option->word) == 0)
        return true;
    return strchr(text, ',') && !(option->path && ls_file_exists(text));
}

/* Sets the option from an item of a list, unless the item is the option's word. */
static enum ls_status set_item(struct ls_options *o, const struct ls_option *option, const char *where,
                               const char *list, const char *item)
{
    if (!*item)
        return ls_fail(LS_USAGE, "%s: '%s' has an empty item; a list is written as A,B,C", where, list);
    if (option->word && strcmp(item, option->word) == 0)
        return LS_OK;
    return set_one(o, option, where, item);
}

/* Checks the items from the last to the first, so that the field keeps the first. */
static enum ls_status set_list(struct ls_options *o, const struct ls_option *option, const char *where,
                               const char *text)
{
    enum ls_status st = LS_OK;
    char **list = &o->lists[option - ls_option_table], *items = ls_strdup(text), *comma = items;
    if (!items)
        return LS_FAILED;
    while (st == LS_OK && comma) {
        comma = strrchr(items, ',');
        st = set_item(o, option, where, text, comma ? comma + 1 : items);
        if (comma)
            *comma = 0;
    }
    ls_free(items);
    return st == LS_OK ? set_text(list, text) : st;
}

enum ls_status ls_option_set(struct ls_options *o, const struct ls_option *option, const char *where, const char *text)
{
    if (o->takes_lists && option->axis) {
        char **list = &o->lists[option - ls_option_table];
        if (is_list(option, text))
            return set_list(o, option, where, text);
        ls_free(*list);
        *list = NULL;
    }
    return set_one(o, option, where, text);
}

/* The shortest decimal that reads back as the same double. */
static void print_real(double x, char room[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(room, 32, "%.*g", digits, x);
        if (strtod(room, NULL) == x)
            return;
    }
}

static void print_whole(const struct ls_option *option, int64_t n, char room[32])
{
    if (!option->floor || n > LS_FLOOR_AUTO)
        snprintf(room, 32, "%" PRId64, n);
    else if (n == LS_FLOOR_AUTO)
        snprintf(room, 32, "auto");
    else
        snprintf(room, 32, "auto:%" PRId64, LS_FLOOR_AUTO - n);
}

const char *ls_option_get(const struct ls_options *o, const struct ls_option *option, char room[32])
{
    const void *value = field(o, option);
    switch (option->type) {
    case LS_OPTION_WHOLE:
        print_whole(option, *(const int64_t *)value, room);
        return room;
    case LS_OPTION_SEED:
        snprintf(room, 32, "%" PRIu64, *(const uint64_t *)value);
        return room;
    case LS_OPTION_REAL:
        print_real(*(const double *)value, room);
        return room;
    case LS_OPTION_SWITCH:
        return *(const bool *)value ? "true" : "false";
    case LS_OPTION_AUTO:
        switch (*(const enum ls_auto *)value) {
        case LS_AUTO:
            return "auto";
        case LS_OFF:
            return "false";
        case LS_ON:
            return "true";
        }
        break;
    case LS_OPTION_SHAPE:
    case LS_OPTION_TEXT:
        break;
    }
    return *(char *const *)value;
}
