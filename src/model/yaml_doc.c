#include "model/yaml_doc.h"
#include "base/log.h"
#include "base/text/nearest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum ls_status parser_failed(const char *path, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR)
        return ls_fail(LS_FAILED, "%s: out of memory", path);
    if (p->error == YAML_READER_ERROR)
        return ls_fail(LS_BAD_INPUT, "%s: byte %zu: not YAML text: %s", path, p->problem_offset, p->problem);
    return ls_fail(LS_BAD_INPUT, "%s:%zu: not YAML: %s", path, p->problem_mark.line + 1, p->problem);
}

/* A file must have exactly one document. */
static enum ls_status check_end(const char *path, yaml_parser_t *parser)
{
    yaml_document_t rest;
    if (!yaml_parser_load(parser, &rest))
        return parser_failed(path, parser);
    const yaml_node_t *root = yaml_document_get_root_node(&rest);
    size_t line = root ? root->start_mark.line + 1 : 0;
    yaml_document_delete(&rest);
    return line ? ls_fail(LS_BAD_INPUT, "%s:%zu: a second document begins here; a model file holds one", path, line)
                : LS_OK;
}

enum ls_status ls_yaml_load(struct ls_yaml *y, const char *path, const char *text, size_t length)
{
    yaml_parser_t parser;
    enum ls_status st;
    y->path = path;
    if (!yaml_parser_initialize(&parser))
        return ls_fail(LS_FAILED, "%s: out of memory", path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (!yaml_parser_load(&parser, &y->document)) {
        st = parser_failed(path, &parser);
        goto delete_parser;
    }
    if (!yaml_document_get_root_node(&y->document))
        st = ls_fail(LS_BAD_INPUT, "%s: is empty; `lockstep models show lenet --yaml` prints an example", path);
    else
        st = check_end(path, &parser);
    if (st != LS_OK)
        yaml_document_delete(&y->document);
delete_parser:
    yaml_parser_delete(&parser);
    return st;
}

void ls_yaml_release(struct ls_yaml *y)
{
    ls_log_place(NULL);
    yaml_document_delete(&y->document);
}

yaml_node_t *ls_yaml_node(struct ls_yaml *y, int id)
{
    return yaml_document_get_node(&y->document, id);
}

int ls_yaml_line(const yaml_node_t *node)
{
    return (int)node->start_mark.line + 1;
}

void ls_yaml_at(const struct ls_yaml *y, const yaml_node_t *node)
{
    ls_log_place("%s:%d: ", y->path, ls_yaml_line(node));
}

enum ls_status ls_yaml_text(struct ls_yaml *y, const yaml_node_t *node, const char *what, const char **text)
{
    ls_yaml_at(y, node);
    if (node->type != YAML_SCALAR_NODE)
        return ls_fail(LS_BAD_INPUT, "%s is a single value, here stands a %s", what,
                       node->type == YAML_MAPPING_NODE ? "map" : "list");
    /* Control characters, including 0, are not allowed in names and would garble messages. */
    for (size_t i = 0; i < node->data.scalar.length; i++)
        if (node->data.scalar.value[i] < ' ')
            return ls_fail(LS_BAD_INPUT, "%s holds a control character", what);
    *text = (const char *)node->data.scalar.value;
    return LS_OK;
}

enum ls_status ls_yaml_integer(struct ls_yaml *y, const yaml_node_t *node, const char *what, int64_t least,
                               int64_t *value)
{
    const char *text = NULL;
    char *end;
    LS_TRY(ls_yaml_text(y, node, what, &text));
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < least || v > 1000000000)
        return ls_fail(LS_BAD_INPUT, "%s is a whole number of at least %lld, not '%.40s'", what, (long long)least,
                       text);
    *value = v;
    return LS_OK;
}

const char *ls_yaml_hint(const char *word, const char *const *known, int n, char text[96])
{
    const char *near = ls_nearest_word(word, known, n);
    snprintf(text, 96, ";");
    if (near)
        snprintf(text, 96, "; did you mean '%.64s'?", near);
    return text;
}

const char *ls_yaml_list(const char *const *words, int n, char text[512])
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < n && used < 512; i++)
        used += (size_t)snprintf(text + used, 512 - used, "%s%s", i == 0 ? "" : i == n - 1 ? " and " : ", ", words[i]);
    return text;
}
