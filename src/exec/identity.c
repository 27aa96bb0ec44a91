#include "exec/identity.h"
#include "backend/core/tune_cache.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/files/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "# identity "

/* A value has no spaces. */
static void add(char text[LS_IDENTITY_ROOM], const char *key, const char *value)
{
    size_t used = strlen(text), start = used;
    snprintf(text + used, LS_IDENTITY_ROOM - used, "%s%s=%s", used ? " " : "", key, value);
    for (char *at = text + start + (start > 0); *at; at++)
        if (*at == ' ')
            *at = '-';
}

static void add_number(char text[LS_IDENTITY_ROOM], const char *key, int64_t value)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, value);
    add(text, key, number);
}

void ls_identity_make(const struct ls_options *o, const struct ls_engine *e, char text[LS_IDENTITY_ROOM])
{
    struct ls_backend_about about;
    char plan[20];
    text[0] = 0;
    e->backend->about(&about);
    snprintf(plan, sizeof plan, "%016" PRIx64, ls_tune_cache_identity(ls_engine_train_choices(e)));
    add(text, "backend", e->backend->name);
    add(text, "library", about.library);
    add(text, "isa", about.isa);
    add(text, "dtype", o->dtype);
    if (!e->backend->any_threads)
        add_number(text, "threads", e->threads);
    add_number(text, "replicas", e->tree->replicas);
    add_number(text, "passes", e->passes);
    if (e->strategy->identity)
        add_number(text, e->strategy->identity, e->comm ? ls_comm_size(e->comm) : 1);
    if (o->fast)
        add(text, "fast", "yes");
    add(text, "plan", plan);
}

uint32_t ls_identity_number(const char *identity)
{
    return (uint32_t)ls_checksum_of(identity, strlen(identity));
}

/* The next word at *at: its key and value, cut to the room they have. */
static bool next_word(const char **at, char key[32], char value[96])
{
    size_t length = strcspn(*at, " "), name = strcspn(*at, "= ");
    if (length == 0)
        return false;
    snprintf(key, 32, "%.*s", (int)name, *at);
    snprintf(value, 96, "%.*s", (int)(length > name ? length - name - 1 : 0), *at + name + (length > name));
    *at += length + ((*at)[length] == ' ');
    return true;
}

void ls_identity_words(const char *identity, char *text, size_t room)
{
    char key[32], value[96];
    size_t used = 0;
    text[0] = 0;
    for (const char *at = identity; next_word(&at, key, value) && used < room;)
        used += (size_t)snprintf(text + used, room - used, "%s%s %s", used ? ", " : "", key, value);
}

bool ls_identity_value(const char *identity, const char *key, char *value, size_t room)
{
    char name[32], found[96];
    for (const char *at = identity; next_word(&at, name, found);)
        if (strcmp(name, key) == 0) {
            snprintf(value, room, "%s", found);
            return true;
        }
    return false;
}

void ls_identity_difference(const char *was, const char *is, char *text, size_t room)
{
    char key[32], value[96], now[96];
    size_t used = 0;
    text[0] = 0;
    if (!*was || !*is)
        return;
    for (const char *at = was; next_word(&at, key, value) && used < room;)
        if (!ls_identity_value(is, key, now, sizeof now))
            used += (size_t)snprintf(text + used, room - used, "%s%s %s, now none", used ? "; " : "", key, value);
        else if (strcmp(value, now) != 0)
            used += (size_t)snprintf(text + used, room - used, "%s%s %s, now %s", used ? "; " : "", key, value, now);
    for (const char *at = is; next_word(&at, key, now) && used < room;)
        if (!ls_identity_value(was, key, value, sizeof value))
            used += (size_t)snprintf(text + used, room - used, "%s%s none, now %s", used ? "; " : "", key, now);
}

void ls_identity_machine_difference(const char *was, const char *is, char *text, size_t room)
{
    static const char *const keys[] = {"backend", "library", "isa", "threads"};
    char then[LS_IDENTITY_ROOM] = "", now[LS_IDENTITY_ROOM] = "", value[96];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (ls_identity_value(was, keys[i], value, sizeof value))
            add(then, keys[i], value);
        if (ls_identity_value(is, keys[i], value, sizeof value))
            add(now, keys[i], value);
    }
    ls_identity_difference(then, now, text, room);
}

/* --- plans ---------------------------------------------------------------------------------------------- */

enum ls_status ls_identity_load_plan(const char *path, char **lines)
{
    size_t size;
    char *file = ls_file_is_dir(path) ? ls_format("%s/plan.txt", path) : ls_strdup(path);
    if (!file)
        return LS_FAILED;
    bool missing = !ls_file_exists(file) && (errno == ENOENT || errno == ENOTDIR);
    enum ls_status st = missing ? ls_fail(LS_BAD_INPUT, "%s: no such plan; give a run directory or its plan.txt", file)
                                : ls_file_read(file, (size_t)64 << 20, lines, &size);
    if (st == LS_OK && strncmp(*lines, HEADER, strlen(HEADER)) != 0 && !strchr(*lines, '|')) {
        st = ls_fail(LS_BAD_INPUT,
                     "%s: not a plan: there is no line of the form machine|layer|kernel|milliseconds in it", file);
        ls_free(*lines);
        *lines = NULL;
    }
    ls_free(file);
    return st;
}

void ls_identity_of_plan(const char *lines, char identity[LS_IDENTITY_ROOM])
{
    size_t header = strlen(HEADER);
    identity[0] = 0;
    if (strncmp(lines, HEADER, header) == 0)
        snprintf(identity, LS_IDENTITY_ROOM, "%.*s", (int)strcspn(lines + header, "\n"), lines + header);
}

enum ls_status ls_identity_try_plan(const char *path, char **lines, char *why, size_t room)
{
    bool muted = ls_log_mute(true);
    enum ls_status st = ls_identity_load_plan(path, lines);
    ls_log_mute(muted);
    if (st == LS_OK)
        return LS_OK;
    *lines = NULL;
    ls_log_last_copy(why, room);
    return st;
}

char *ls_identity_recorded_plan(const char *run)
{
    char *path = run ? ls_format("%s/plan.txt", run) : NULL, *lines = NULL, why[1024];
    bool there = path && ls_file_exists(path);
    if (there && ls_identity_try_plan(path, &lines, why, sizeof why) != LS_OK)
        ls_warn("%s: damaged; kernels are chosen anew", path);
    ls_free(path);
    return lines;
}

bool ls_identity_plan_value(const char *path, const char *key, char *value, size_t room)
{
    char *lines, identity[LS_IDENTITY_ROOM] = "", why[1024];
    if (ls_identity_try_plan(path, &lines, why, sizeof why) == LS_OK)
        ls_identity_of_plan(lines, identity);
    ls_free(lines);
    return ls_identity_value(identity, key, value, room);
}

int ls_identity_plan_threads(const char *path)
{
    char value[96];
    return ls_identity_plan_value(path, "threads", value, sizeof value) ? (int)strtol(value, NULL, 10) : 0;
}

enum ls_status ls_identity_save_plan(const struct ls_engine *e, const char *identity, const char *path)
{
    char *choices = ls_engine_choices(e), *text = choices ? ls_format(HEADER "%s\n%s", identity, choices) : NULL;
    enum ls_status st = text ? ls_file_write(path, text, strlen(text)) : LS_FAILED;
    ls_free(choices);
    ls_free(text);
    return st;
}
