/* config.yaml and log.txt of a run: pairs of a name and a text. Either may be missing, or from another version. */
#define _GNU_SOURCE
#include "cmd/report/inputs/run_view.h"
#include "base/files/file.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

enum { CONFIG_LIMIT = 1 << 20, LINE = 4096 };

static enum ls_status add(struct ls_run_view *v, struct ls_facts *facts, const char *name, const char *value)
{
    if (facts->n == facts->room) {
        int room = facts->room ? 2 * facts->room : 64;
        struct ls_fact *list = ls_realloc(facts->list, (size_t)facts->room, (size_t)room, sizeof *list);
        if (!list)
            return LS_FAILED;
        facts->list = list;
        facts->room = room;
    }
    struct ls_fact fact = {ls_arena_strdup(&v->strings, name), ls_arena_strdup(&v->strings, value)};
    if (!fact.name || !fact.value)
        return LS_FAILED;
    facts->list[facts->n++] = fact;
    return LS_OK;
}

static const char *find(const struct ls_facts *facts, const char *name)
{
    for (int i = facts->n - 1; i >= 0; i--) /* of a resumed run the latest */
        if (strcmp(facts->list[i].name, name) == 0)
            return facts->list[i].value;
    return NULL;
}

const char *ls_run_option(const struct ls_run_view *v, const char *name)
{
    return find(&v->config, name);
}

const char *ls_run_fact(const struct ls_run_view *v, const char *name)
{
    const char *value = find(&v->log, name);
    return value && *value ? value : NULL;
}

/* --- config.yaml ----------------------------------------------------------------------------------------------- */

/* Takes the pairs of scalars at the top level; everything else is passed over. */
static enum ls_status take_pairs(struct ls_run_view *v, yaml_document_t *document)
{
    yaml_node_t *root = yaml_document_get_root_node(document);
    if (!root || root->type != YAML_MAPPING_NODE)
        return LS_OK;
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        yaml_node_t *key = yaml_document_get_node(document, p->key),
                    *value = yaml_document_get_node(document, p->value);
        if (!key || !value || key->type != YAML_SCALAR_NODE || value->type != YAML_SCALAR_NODE)
            continue;
        LS_TRY(add(v, &v->config, (const char *)key->data.scalar.value, (const char *)value->data.scalar.value));
        v->has_config = true;
    }
    return LS_OK;
}

static enum ls_status read_config(struct ls_run_view *v, const char *path)
{
    char *text;
    size_t size;
    bool was = ls_log_mute(true);
    enum ls_status st = ls_file_read(path, CONFIG_LIMIT, &text, &size);
    ls_log_mute(was);
    if (st != LS_OK)
        return LS_OK;
    yaml_parser_t parser;
    yaml_document_t document;
    if (yaml_parser_initialize(&parser)) {
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
        if (yaml_parser_load(&parser, &document)) {
            st = take_pairs(v, &document);
            yaml_document_delete(&document);
        }
        yaml_parser_delete(&parser);
    }
    ls_free(text);
    return st;
}

/* --- log.txt --------------------------------------------------------------------------------------------------- */

/* Returns the number in front of `tail` in text; NaN if there is none. */
static double number_before(const char *text, const char *tail)
{
    const char *at = strstr(text, tail);
    while (at && at > text && strchr("0123456789.", at[-1]))
        at--;
    char *end;
    double value = at ? strtod(at, &end) : NAN;
    return at && end != at ? value : NAN;
}

static void take_numbers(struct ls_run_view *v, const char *name, const char *value)
{
    if (strcmp(name, "model") == 0) {
        v->classes = number_before(value, " classes");
        v->multiply_adds = 1e6 * number_before(value, " million multiply-adds");
        if (isnan(v->multiply_adds))
            v->multiply_adds = 1e9 * number_before(value, " billion multiply-adds");
    }
    if (strcmp(name, "processes") == 0) {
        v->processes = strtod(value, NULL);
        v->threads = number_before(value, " thread");
    }
}

/* A line "  word       text" is a fact. */
static enum ls_status take_fact(struct ls_run_view *v, const char *line)
{
    char name[32];
    size_t length = strspn(line + 2, "abcdefghijklmnopqrstuvwxyz");
    const char *value = line + 2 + length;
    value += strspn(value, " ");
    if (length == 0 || length >= sizeof name || value < line + 2 + length + 1 || !*value)
        return LS_OK;
    snprintf(name, sizeof name, "%.*s", (int)length, line + 2);
    int rank;
    double seconds;
    if (sscanf(line, "  rank %d (%*[^)]) came last to %*d sums and was waited for %lf s.", &rank, &seconds) == 2) {
        if (v->late_rank < 0 || seconds > v->late_seconds) {
            v->late_rank = rank;
            v->late_seconds = seconds;
        }
        return LS_OK;
    }
    take_numbers(v, name, value);
    return v->log.n < 1000 ? add(v, &v->log, name, value) : LS_OK;
}

static enum ls_status take_line(struct ls_run_view *v, const char *line)
{
    int code;
    double parameters;
    if (strncmp(line, "  ", 2) == 0)
        return take_fact(v, line);
    if (sscanf(line, "Training %lf parameters", &parameters) == 1)
        v->parameters = parameters;
    if (strncmp(line, "Started ", 8) == 0)
        return add(v, &v->log, "started", line + 8);
    if (strncmp(line, "Resumed ", 8) == 0) {
        v->resumed++;
        v->exit_code = -1;
        return add(v, &v->log, "pipeline", ""); /* it may go on with another layout */
    }
    if (strncmp(line, "Pipeline: ", 10) == 0)
        return add(v, &v->log, "idle", line + 10);
    const char *with = strncmp(line, "Ended ", 6) == 0 ? strstr(line, " with exit code ") : NULL;
    if (with && sscanf(with, " with exit code %d", &code) == 1) {
        v->exit_code = code;
        return add(v, &v->log, "ended", line + 6);
    }
    return LS_OK;
}

static enum ls_status read_log(struct ls_run_view *v, const char *path)
{
    char why[LS_FILE_WHY], line[LINE];
    size_t size;
    int fd = ls_file_open(path, &size, why);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!in) {
        if (fd >= 0)
            close(fd);
        return LS_OK;
    }
    enum ls_status st = LS_OK;
    bool begins = true; /* a part of a longer line is no line */
    while (st == LS_OK && fgets(line, sizeof line, in)) {
        size_t length = strlen(line);
        bool whole = length > 0 && line[length - 1] == '\n';
        if (whole)
            line[length - 1] = 0;
        if (begins)
            st = take_line(v, line);
        begins = whole;
        v->has_log = true;
    }
    fclose(in);
    return st;
}

enum ls_status ls_run_view_texts(struct ls_run_view *v)
{
    v->exit_code = v->late_rank = -1;
    v->parameters = v->multiply_adds = v->classes = v->processes = v->threads = NAN;
    char *config = ls_format("%s/config.yaml", v->path), *log = ls_format("%s/log.txt", v->path);
    enum ls_status st = config && log ? read_config(v, config) : LS_FAILED;
    if (st == LS_OK)
        st = read_log(v, log);
    ls_free(config);
    ls_free(log);
    return st;
}
