#include "base/log.h"
#include "config/table.h"

#include <string.h>
#include <yaml.h>

/* --- reading ---------------------------------------------------------------------------------------------------- */

struct reader {
    yaml_parser_t parser;
    const char *name;                    /* of the file, borrowed */
    struct ls_options *o;                /* borrowed */
    uint64_t keep[LS_OPTION_WORDS];      /* rows that are not set */
    unsigned first_line[LS_OPTION_ROWS]; /* line where a row was set; 0: not yet */
};

static unsigned line_of(const yaml_event_t *event)
{
    return (unsigned)event->start_mark.line + 1;
}

static enum ls_status next_event(struct reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event))
        return LS_OK;
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return ls_fail(LS_FAILED, "%s: out of memory", r->name);
    if (p->error == YAML_READER_ERROR)
        return ls_fail(LS_USAGE, "%s: byte %zu: not YAML text: %s", r->name, p->problem_offset, p->problem);
    return ls_fail(LS_USAGE, "%s:%zu: not YAML: %s%s%s", r->name, p->problem_mark.line + 1, p->problem,
                   p->context ? " " : "", p->context ? p->context : "");
}

static const char *kind_of(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_MAPPING_START_EVENT:
        return "a nested map";
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_ALIAS_EVENT:
        return "an alias";
    case YAML_SCALAR_EVENT:
        return "a single value";
    default:
        return "nothing";
    }
}

static bool is_null(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

/* A quoted scalar can hold any bytes, including \0. The text of an option cannot. */
static bool has_zero(const yaml_event_t *event)
{
    return strlen((const char *)event->data.scalar.value) != event->data.scalar.length;
}

static enum ls_status find_key(struct reader *r, const yaml_event_t *key, const struct ls_option **option)
{
    unsigned line = line_of(key);
    if (key->type != YAML_SCALAR_EVENT)
        return ls_fail(LS_USAGE, "%s:%u: expected the name of an option, found %s", r->name, line, kind_of(key));
    const char *name = (const char *)key->data.scalar.value;
    const struct ls_option *found = has_zero(key) ? NULL : ls_option_find(name);
    if (!found) {
        const char *near = ls_option_nearest(name, ~0u);
        return ls_fail(LS_USAGE, "%s:%u: unknown option '%.64s'%s%s%s", r->name, line, name,
                       near ? "; did you mean " : "", near ? near : "",
                       near ? "?" : "; `lockstep train --help` lists them");
    }
    unsigned *first = &r->first_line[found - ls_option_table];
    if (*first)
        return ls_fail(LS_USAGE, "%s:%u: %s stands here a second time (first in line %u)", r->name, line, name, *first);
    *first = line;
    *option = found;
    return LS_OK;
}

static enum ls_status set_value(struct reader *r, const struct ls_option *option, const yaml_event_t *value)
{
    char where[512];
    snprintf(where, sizeof where, "%s:%u: %s", r->name, line_of(value), option->name);
    if (value->type != YAML_SCALAR_EVENT)
        return ls_fail(LS_USAGE, "%s: expected a single value, found %s", where, kind_of(value));
    if (has_zero(value))
        return ls_fail(LS_USAGE, "%s: the value has a zero byte in it", where);
    if (is_null(value) && !option->missing)
        return LS_OK;
    const char *text = is_null(value) ? "" : (const char *)value->data.scalar.value;
    if (ls_option_given(r->keep, option))
        return LS_OK;
    LS_TRY(ls_option_set(r->o, option, where, text));
    ls_option_mark(r->o, option);
    return LS_OK;
}

/* Reads one `key: value` of the map. Sets *end at the end of the map. */
static enum ls_status read_pair(struct reader *r, bool *end)
{
    yaml_event_t key, value;
    const struct ls_option *option = NULL;
    LS_TRY(next_event(r, &key));
    *end = key.type == YAML_MAPPING_END_EVENT;
    enum ls_status st = *end ? LS_OK : find_key(r, &key, &option);
    yaml_event_delete(&key);
    if (st != LS_OK || *end)
        return st;
    LS_TRY(next_event(r, &value));
    st = set_value(r, option, &value);
    yaml_event_delete(&value);
    return st;
}

/* Skips to the content of the document. Sets *empty when there is no document. */
static enum ls_status open_map(struct reader *r, bool *empty)
{
    for (;;) {
        yaml_event_t event;
        LS_TRY(next_event(r, &event));
        yaml_event_type_t type = event.type;
        enum ls_status st = LS_OK;
        *empty = type == YAML_STREAM_END_EVENT || (type == YAML_SCALAR_EVENT && is_null(&event));
        bool found = *empty || type == YAML_MAPPING_START_EVENT;
        if (!found && type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT)
            st = ls_fail(LS_USAGE, "%s:%u: expected lines such as `batch: 64`, found %s", r->name, line_of(&event),
                         kind_of(&event));
        yaml_event_delete(&event);
        if (found || st != LS_OK)
            return st;
    }
}

/* Only the end of the document may follow the map. */
static enum ls_status close_document(struct reader *r)
{
    for (;;) {
        yaml_event_t event;
        LS_TRY(next_event(r, &event));
        bool end = event.type == YAML_STREAM_END_EVENT, more = event.type == YAML_DOCUMENT_START_EVENT;
        unsigned line = line_of(&event);
        yaml_event_delete(&event);
        if (more)
            return ls_fail(LS_USAGE, "%s:%u: a second document starts here; a configuration is one", r->name, line);
        if (end)
            return LS_OK;
    }
}

static enum ls_status read_document(struct reader *r)
{
    bool end;
    LS_TRY(open_map(r, &end));
    if (end)
        return LS_OK;
    while (!end)
        LS_TRY(read_pair(r, &end));
    return close_document(r);
}

enum ls_status ls_options_yaml(struct ls_options *o, const char *name, const char *text, size_t size,
                               const uint64_t keep[LS_OPTION_WORDS])
{
    struct reader r = {.name = name, .o = o};
    if (keep)
        memcpy(r.keep, keep, sizeof r.keep);
    if (!yaml_parser_initialize(&r.parser))
        return ls_fail(LS_FAILED, "%s: out of memory", name);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    enum ls_status st = read_document(&r);
    yaml_parser_delete(&r.parser);
    return st;
}

/* --- configuration or model ------------------------------------------------------------------------------------- */

/* Processes one event. `depth` counts the maps and lists around it. `key`: the next scalar of the outermost map is a
 * key. */
static bool is_layers_key(const yaml_event_t *event, int *depth, bool *key)
{
    switch (event->type) {
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        *key = ++*depth == 1 && event->type == YAML_MAPPING_START_EVENT;
        return false;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        *key = --*depth == 1;
        return false;
    case YAML_SCALAR_EVENT:
    case YAML_ALIAS_EVENT:
        if (*depth != 1)
            return false;
        *key = !*key;
        return !*key && event->type == YAML_SCALAR_EVENT &&
               strcmp((const char *)event->data.scalar.value, "layers") == 0;
    default:
        return false;
    }
}

bool ls_yaml_is_model(const char *text, size_t size)
{
    yaml_parser_t parser;
    bool model = false, key = false, more = true;
    int depth = 0;
    if (!yaml_parser_initialize(&parser))
        return false;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    while (more && !model) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event))
            break;
        model = is_layers_key(&event, &depth, &key);
        more = event.type != YAML_STREAM_END_EVENT && event.type != YAML_DOCUMENT_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return model;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

/* Whether the value needs no quotes: YAML reads it as this text. */
static bool is_plain(const char *text)
{
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,+-";
    size_t n = strlen(text);
    return n > 0 && strspn(text, safe) == n && !strchr(":,", text[0]) && text[n - 1] != ':' &&
           (text[0] != '-' || (text[1] >= '0' && text[1] <= '9')) && strcmp(text, "null") != 0;
}

/* The number of bytes after the first byte of a UTF-8 character, or -1 if no character starts with this byte. */
static int bytes_after(unsigned char first)
{
    if (first < 0x80)
        return 0;
    return first < 0xc2 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : -1;
}

/* YAML can represent only UTF-8, and not all of its characters. File names may contain any bytes. */
static bool is_yaml_text(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int more = bytes_after(*p);
        if (more < 0)
            return false;
        unsigned point = more == 0 ? *p : *p & (0x3fu >> more);
        for (p++; more > 0; more--, p++) {
            if ((*p & 0xc0) != 0x80)
                return false;
            point = point << 6 | (*p & 0x3f);
        }
        if ((point >= 0x80 && point < 0xa0) || (point >= 0xd800 && point < 0xe000) || point == 0xfffe ||
            point == 0xffff)
            return false;
    }
    return true;
}

static void write_quoted(const char *text, FILE *out)
{
    putc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\x%02x", *p);
        else
            putc(*p, out);
    putc('"', out);
}

static int write_value(const char *text, FILE *out)
{
    if (!is_plain(text)) {
        write_quoted(text, out);
        return 0;
    }
    return fprintf(out, "%s", text);
}

enum ls_status ls_options_write(const struct ls_options *o, enum ls_command command, FILE *out)
{
    const char *group = "";
    fprintf(out, "# The effective configuration: every option of the command, defaults too.\n");
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!(option->commands & command) || option->here || option->view)
            continue;
        if (strcmp(group, option->group) != 0)
            fprintf(out, "\n# %s\n", option->group);
        group = option->group;
        char room[32];
        const char *text = ls_option_get(o, option, room);
        if (text && !is_yaml_text(text))
            return ls_fail(LS_FAILED, "--%s: '%s' cannot be written as YAML; use a name in UTF-8", option->name, text);
        int used = fprintf(out, text ? "%s: " : "# %s:", option->name);
        if (text)
            used += write_value(text, out);
        fprintf(out, "%*s  # %s\n", used < 26 ? 26 - used : 0, "", option->help);
    }
    return fflush(out) != 0 || ferror(out)
               ? ls_fail(LS_FAILED, "the configuration cannot be written; is the disk full?")
               : LS_OK;
}
