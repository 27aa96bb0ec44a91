/* A line that this version writes is an object of plain numbers and words; scan() reads it without any library, several
 * hundred megabytes a second. A line with anything else (an object within it, an escape, UTF-8, a number of unusual
 * length) goes through jansson, which is also the judge of what is broken. */
#include "report/metrics/metrics_line.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum type { REAL, WHOLE, WORD, KIND, COLLECTIVES };

static const struct key {
    const char *name;
    enum type type;
    size_t offset;
} keys[] = {
#define KEY(name, type)                               \
    {                                                 \
#name, type, offsetof(struct ls_record, name) \
    }
    KEY(kind, KIND),
    KEY(step, WHOLE),
    KEY(epoch, WHOLE),
    KEY(samples, WHOLE),
    KEY(loss, REAL),
    KEY(lr, REAL),
    KEY(top1, REAL),
    KEY(top5, REAL),
    KEY(samples_per_s, REAL),
    KEY(seconds, REAL),
    KEY(time, WORD),
    KEY(input_share, REAL),
    KEY(compute_share, REAL),
    KEY(wait_share, REAL),
    KEY(update_share, REAL),
    KEY(staleness, REAL),
    KEY(cutoff_k, REAL),
    KEY(loader_threads, WHOLE),
    KEY(gpu_utilisation, REAL),
    KEY(gpu_memory_bytes, REAL),
    KEY(gpu_power_w, REAL),
    KEY(gpu_clock_mhz, REAL),
    KEY(gpu_temperature_c, REAL),
    KEY(rank, WHOLE),
    KEY(host, WORD),
    KEY(steps, WHOLE),
    KEY(input_seconds, REAL),
    KEY(compute_seconds, REAL),
    KEY(exposed_seconds, REAL),
    KEY(hidden_seconds, REAL),
    KEY(late_seconds, REAL),
    KEY(waited_for, WHOLE),
    KEY(waited_for_seconds, REAL),
    KEY(update_seconds, REAL),
    KEY(collectives, COLLECTIVES),
#undef KEY
};
enum { N_KEYS = sizeof keys / sizeof *keys };
_Static_assert(N_KEYS < 64, "successor[64] of struct ls_metrics_reader has no room for a key");

static const struct ls_record nothing = {
    .step = -1,
    .epoch = -1,
    .samples = -1,
    .loss = NAN,
    .lr = NAN,
    .top1 = NAN,
    .top5 = NAN,
    .samples_per_s = NAN,
    .seconds = NAN,
    .input_share = NAN,
    .compute_share = NAN,
    .wait_share = NAN,
    .update_share = NAN,
    .staleness = NAN,
    .cutoff_k = NAN,
    .loader_threads = -1,
    .gpu_utilisation = NAN,
    .gpu_memory_bytes = NAN,
    .gpu_power_w = NAN,
    .gpu_clock_mhz = NAN,
    .gpu_temperature_c = NAN,
    .rank = -1,
    .steps = -1,
    .input_seconds = NAN,
    .compute_seconds = NAN,
    .exposed_seconds = NAN,
    .hidden_seconds = NAN,
    .late_seconds = NAN,
    .update_seconds = NAN,
    .waited_for = -1,
    .waited_for_seconds = NAN,
};

static enum ls_record_kind kind_of(const char *word, size_t length)
{
    static const char *const names[] = {"", "step", "epoch", "eval", "rank"};
    for (int i = LS_RECORD_STEP; i <= LS_RECORD_RANK; i++)
        if (strlen(names[i]) == length && memcmp(word, names[i], length) == 0)
            return (enum ls_record_kind)i;
    return LS_RECORD_OTHER;
}

static const struct key *find(const char *name, size_t length)
{
    for (int i = 0; i < N_KEYS; i++)
        if (strlen(keys[i].name) == length && memcmp(keys[i].name, name, length) == 0)
            return &keys[i];
    return NULL;
}

/* --- storing values -------------------------------------------------------------------------------------------- */

static void set_number(struct ls_record *r, const struct key *k, double value)
{
    char *at = (char *)r + k->offset;
    if (k->type == REAL)
        memcpy(at, &value, sizeof value);
    if (k->type != WHOLE || !(fabs(value) < 9e15))
        return;
    int64_t whole = (int64_t)value;
    memcpy(at, &whole, sizeof whole);
}

/* Copies a word; one that is too long is cut at the boundary of a character. */
static void set_word(struct ls_record *r, const struct key *k, const char *word, size_t length)
{
    char *at = (char *)r + k->offset;
    if (k->type == KIND)
        r->kind = kind_of(word, length);
    if (k->type != WORD)
        return;
    if (length >= LS_RECORD_WORD)
        for (length = LS_RECORD_WORD - 1; length > 0 && ((unsigned char)word[length] & 0xC0) == 0x80; length--)
            ;
    memcpy(at, word, length);
    at[length] = 0;
}

static void set_null(struct ls_record *r, const struct key *k)
{
    if (k->offset == offsetof(struct ls_record, loss))
        r->is_diverged = true;
}

/* What every line needs. */
static bool complete(struct ls_record *r, bool has_kind)
{
    if (!has_kind || r->step < 0)
        return false;
    if (!r->time[0] && r->epoch >= 0)
        r->epoch++;
    return true;
}

/* --- the fast way ---------------------------------------------------------------------------------------------- */

static const char *skip_space(const char *p)
{
    while (*p == ' ' || *p == '\t' || *p == '\r')
        p++;
    return p;
}

static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Reads digits into *n, at most 15 over all calls for a number. Returns NULL if there is none, or if there are more. */
static const char *scan_digits(const char *p, uint64_t *n, int *count)
{
    const char *start = p;
    for (; *p >= '0' && *p <= '9'; p++)
        *n = *n * 10 + (uint64_t)(*p - '0');
    *count += (int)(p - start);
    return p == start || p - start > 15 || *count > 15 ? NULL : p;
}

/* Up to 15 digits and powers of ten up to 22 are exact in a double: then one operation rounds once, as strtod does. Returns
 * NULL for any other number. */
static const char *scan_number(const char *p, double *value)
{
    uint64_t n = 0, power = 0;
    int digits = 0, exponent = 0;
    bool negative = *p == '-', below = false;
    p += negative;
    if (*p == '0' && p[1] >= '0' && p[1] <= '9')
        return NULL;
    if (!(p = scan_digits(p, &n, &digits)))
        return NULL;
    if (*p == '.') {
        int before = digits;
        if (!(p = scan_digits(p + 1, &n, &digits)))
            return NULL;
        exponent = before - digits;
    }
    if (*p == 'e' || *p == 'E') {
        int ignored = 0;
        p++;
        below = *p == '-';
        p += *p == '-' || *p == '+';
        if (!(p = scan_digits(p, &power, &ignored)) || power > 1000)
            return NULL;
        exponent += below ? -(int)power : (int)power;
    }
    if (exponent < -22 || exponent > 22)
        return NULL;
    double v = exponent < 0 ? (double)n / tens[-exponent] : (double)n * tens[exponent];
    *value = negative ? -v : v;
    return p;
}

/* Returns the closing quote of a word of plain ASCII that begins at p, or NULL. */
static const char *scan_word(const char *p)
{
    while ((unsigned char)(*p - ' ') < 0x7F - ' ' && *p != '"' && *p != '\\')
        p++;
    return *p == '"' ? p : NULL;
}

/* Reads the value at p. Returns NULL if it is none of the usual ones. k may be NULL: the key is unknown. */
static const char *scan_value(const char *p, const struct key *k, struct ls_record *r)
{
    double number;
    if (*p == '"') {
        const char *end = scan_word(p + 1);
        if (end && k)
            set_word(r, k, p + 1, (size_t)(end - p - 1));
        return end ? end + 1 : NULL;
    }
    if (memcmp(p, "null", 4) == 0) {
        if (k)
            set_null(r, k);
        return p + 4;
    }
    p = scan_number(p, &number);
    if (p && k)
        set_number(r, k, number);
    return p;
}

/* The newline stops every part of the scanner, so that none checks for the end of the line. */
static bool scan(const char *p, const char *newline, unsigned char successor[64], struct ls_record *r)
{
    unsigned last = N_KEYS;
    bool has_kind = false;
    p = skip_space(p);
    if (*p++ != '{')
        return false;
    for (;;) {
        p = skip_space(p);
        if (*p++ != '"')
            return false;
        const struct key *k = &keys[successor[last]];
        size_t length = strlen(k->name);
        if (memcmp(p, k->name, length) != 0 || p[length] != '"') {
            const char *end = scan_word(p);
            if (!end)
                return false;
            length = (size_t)(end - p);
            k = find(p, length);
        }
        p = skip_space(p + length + 1);
        if (*p++ != ':')
            return false;
        p = skip_space(p);
        has_kind |= k && k->type == KIND && *p == '"';
        if (!(p = scan_value(p, k, r)))
            return false;
        if (k)
            successor[last] = (unsigned char)(k - keys);
        last = k ? (unsigned)(k - keys) : N_KEYS;
        p = skip_space(p);
        if (*p == '}')
            return skip_space(p + 1) == newline && complete(r, has_kind);
        if (*p++ != ',')
            return false;
    }
}

/* --- the general way ------------------------------------------------------------------------------------------- */

static void set_collectives(struct ls_record *r, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if (r->n_collectives == LS_RECORD_COLLECTIVES)
            return;
        struct ls_collective_count *c = &r->collectives[r->n_collectives++];
        *c = (struct ls_collective_count){0};
        size_t length = strlen(name) < sizeof c->name ? strlen(name) : sizeof c->name - 1;
        while (length > 0 && length < strlen(name) && ((unsigned char)name[length] & 0xC0) == 0x80)
            length--;
        memcpy(c->name, name, length);
        c->calls = json_number_value(json_object_get(value, "calls"));
        c->bytes = json_number_value(json_object_get(value, "bytes"));
    }
}

static bool parse(const char *line, size_t length, struct ls_record *r)
{
    json_t *object = json_loadb(line, length, JSON_DECODE_INT_AS_REAL, NULL), *value;
    if (!json_is_object(object)) {
        json_decref(object);
        return false;
    }
    for (const struct key *k = keys; k < keys + N_KEYS; k++) {
        value = json_object_get(object, k->name);
        if (json_is_number(value))
            set_number(r, k, json_number_value(value));
        else if (json_is_string(value))
            set_word(r, k, json_string_value(value), json_string_length(value));
        else if (json_is_null(value))
            set_null(r, k);
        else if (k->type == COLLECTIVES)
            set_collectives(r, value);
    }
    bool ok = complete(r, json_is_string(json_object_get(object, "kind")));
    json_decref(object);
    return ok;
}

bool ls_record_parse(const char *line, size_t length, unsigned char successor[64], struct ls_record *r)
{
    memcpy(r, &nothing, offsetof(struct ls_record, collectives)); /* the list is last, and long */
    if (scan(line, line + length, successor, r))
        return true;
    memcpy(r, &nothing, offsetof(struct ls_record, collectives));
    return parse(line, length, r);
}
