#define _GNU_SOURCE
#include "cmd/bench/results/results.h"
#include "base/system/machine.h"
#include "base/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *ls_bench_key(const struct ls_option *option, char room[64])
{
    snprintf(room, 64, "%s", option->name);
    for (char *c = room; (c = strchr(c, '-'));)
        *c = '_';
    return room;
}

const char *ls_bench_text(const json_t *value, char room[64])
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_integer(value))
        snprintf(room, 64, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(room, 64, "%.10g", json_real_value(value));
    else
        snprintf(room, 64, "-");
    return room;
}

/* A file name may contain any bytes; JSON may not. */
static json_t *safe_string(const char *text)
{
    char room[LS_PRINTABLE_SIZE];
    return json_string(ls_utf8_escape(text, room, sizeof room));
}

static json_t *value_of(const struct ls_options *o, const struct ls_option *option)
{
    char room[32];
    const char *text = ls_option_get(o, option, room);
    if (!text)
        return json_null();
    switch (option->type) {
    case LS_OPTION_WHOLE:
        return json_integer(*(const int64_t *)((const char *)o + option->offset));
    case LS_OPTION_REAL:
        return json_real(*(const double *)((const char *)o + option->offset));
    case LS_OPTION_SWITCH:
    case LS_OPTION_AUTO:
    case LS_OPTION_SEED:
    case LS_OPTION_TEXT:
    case LS_OPTION_SHAPE:
        break;
    }
    return safe_string(text);
}

json_t *ls_bench_row(const struct ls_options *o)
{
    char key[64];
    json_t *row = json_object();
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_table[i].axis)
            json_object_set_new(row, ls_bench_key(&ls_option_table[i], key), value_of(o, &ls_option_table[i]));
    ls_bench_row_place(row, (int)o->workers, 1);
    json_object_set_new(row, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(row, "scaling", json_string(o->weak ? "weak" : "strong"));
    json_object_set_new(row, "repetitions", json_array());
    return row;
}

void ls_bench_row_place(json_t *row, int workers, int nodes)
{
    json_object_set_new(row, "workers", json_integer(workers));
    json_object_set_new(row, "nodes", json_integer(nodes));
    json_object_set_new(row, "workers_per_node",
                        workers % nodes == 0 ? json_integer(workers / nodes) : json_real((double)workers / nodes));
}

void ls_bench_machine(const char *card, char *text, size_t room)
{
    char host[256] = "", processor[128];
    long cores = sysconf(_SC_NPROCESSORS_ONLN); /* not those of this process, which may be a worker */
    if (gethostname(host, sizeof host - 1) != 0 || !*host)
        snprintf(host, sizeof host, "unknown host");
    ls_machine_processor(processor, sizeof processor);
    if (*card)
        snprintf(text, room, "%s, %s", host, card);
    else
        snprintf(text, room, "%s, %s, %ld core%s", host, processor, cores, cores == 1 ? "" : "s");
}

json_t *ls_bench_about(const struct ls_options *o, const char *machine)
{
    char now[32] = "", *command = NULL;
    size_t size;
    time_t t = time(NULL);
    struct tm utc;
    FILE *out = open_memstream(&command, &size);
    if (out) {
        ls_options_command(o, out);
        fclose(out);
    }
    if (gmtime_r(&t, &utc))
        strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *about = json_pack("{s:s, s:o, s:s, s:o}", "version", o->version ? o->version : "", "command",
                              safe_string(command ? command : ""), "time", now, "machine", safe_string(machine));
    free(command);
    return about;
}

void ls_bench_table_release(struct ls_bench_table *t)
{
    json_decref(t->about);
    json_decref(t->rows);
    json_decref(t->old);
    *t = (struct ls_bench_table){0};
}
