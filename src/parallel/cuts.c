/* Where a model is cut into stages: evenly, or at the layers that --parallel names. */
#include "base/log.h"
#include "parallel/stages.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums over the layers before a place. Place p is before layer p. */
struct before {
    double work; /* of a step */
    size_t kept, grads, activations;
    int trained;
};

static enum ls_status sum_before(const struct ls_layers *l, const struct ls_cut_rule *r, struct before **list)
{
    struct before *b = *list = ls_alloc((size_t)l->n + 1, sizeof *b);
    if (!b)
        return LS_FAILED;
    for (int n = 0; n < l->n; n++) {
        const struct ls_layer *a = &l->list[n];
        double work = (a->forward + a->backward) * r->passes + a->update + r->additions * (double)a->grads;
        b[n + 1] = (struct before){.work = b[n].work + work,
                                   .kept = b[n].kept + a->kept,
                                   .grads = b[n].grads + a->grads,
                                   .activations = b[n].activations + a->activations,
                                   .trained = b[n].trained + a->trained};
    }
    return LS_OK;
}

/* --- even cuts ---------------------------------------------------------------------------------------------------- */

static size_t bytes_between(const struct before *a, const struct before *b, const struct ls_cut_rule *r, int stage)
{
    double arena = r->arena > 0 ? r->arena : 1;
    return b->kept - a->kept + (b->grads - a->grads) * (size_t)(r->grad_copies > 0 ? r->grad_copies : 1) +
           (size_t)(arena * (double)(b->activations - a->activations)) *
               (size_t)ls_stage_lanes(r->stages, stage, r->passes);
}

size_t ls_stage_memory(const struct ls_layers *l, int first, int end, const struct ls_cut_rule *r, int stage)
{
    struct ls_layer sum = ls_layers_sum(l, first, end);
    struct before none = {0}, all = {.kept = sum.kept, .grads = sum.grads, .activations = sum.activations};
    return bytes_between(&none, &all, r, stage);
}

/* How long the busiest process or wire of a stage is busy in a step; DBL_MAX: the stage is not possible. */
static double busy(const struct ls_layers *l, const struct before *b, const struct ls_cut_rule *r, int stage, int begin,
                   int end)
{
    if (b[end].trained == b[begin].trained)
        return DBL_MAX;
    if (r->limit > 0 && bytes_between(&b[begin], &b[end], r, stage) > r->limit)
        return DBL_MAX;
    double work = b[end].work - b[begin].work;
    double wire = begin > 0 ? r->passes * (r->message + r->byte * (double)l->list[begin].crossing) : 0;
    return wire > work ? wire : work;
}

static enum ls_status too_few(const struct ls_layers *l, const struct before *b, int stages)
{
    int places = 1;
    for (int place = 1; place < l->n; place++)
        places += l->list[place].can_cut && b[place].trained > 0 && b[place].trained < b[l->n].trained;
    return ls_fail(LS_USAGE, "pipeline:%d: this model has too few places where it can be cut (at most %d stages)",
                   stages, places);
}

/* most[s][p]: how long the busiest of s stages before place p is busy, at best. */
static void fill_table(const struct ls_layers *l, const struct before *b, const struct ls_cut_rule *r, double *most,
                       int *from)
{
    size_t row = (size_t)l->n + 1;
    for (size_t i = 0; i < (size_t)(r->stages + 1) * row; i++)
        most[i] = i == 0 ? 0 : DBL_MAX;
    for (int s = 1; s <= r->stages; s++)
        for (int end = 1; end <= l->n; end++)
            for (int begin = 0; begin < end && (end == l->n || l->list[end].can_cut); begin++) {
                double before = most[(size_t)(s - 1) * row + (size_t)begin];
                double *best = &most[(size_t)s * row + (size_t)end];
                double here = before == DBL_MAX ? DBL_MAX : busy(l, b, r, s - 1, begin, end);
                double worst = before > here ? before : here;
                if (worst >= *best)
                    continue;
                *best = worst;
                from[(size_t)s * row + (size_t)end] = begin;
            }
}

enum ls_status ls_cut_evenly(const struct ls_layers *l, const struct ls_cut_rule *r, int *cuts)
{
    enum ls_status st;
    size_t row = (size_t)l->n + 1;
    struct before *b = NULL;
    double *most = NULL;
    int *from = NULL;
    if (r->stages > LS_MOST_STAGES)
        return ls_fail(LS_USAGE, "pipeline:%d: at most %d stages are possible", r->stages, LS_MOST_STAGES);
    LS_TRY_GOTO(out, sum_before(l, r, &b));
    most = ls_alloc((size_t)(r->stages + 1) * row, sizeof *most);
    from = ls_alloc((size_t)(r->stages + 1) * row, sizeof *from);
    if (!most || !from) {
        st = LS_FAILED;
        goto out;
    }
    struct ls_cut_rule rule = *r;
    fill_table(l, b, &rule, most, from);
    if (rule.limit > 0 && most[(size_t)r->stages * row + (size_t)l->n] == DBL_MAX) {
        rule.limit = 0; /* no cut fits */
        fill_table(l, b, &rule, most, from);
    }
    if (most[(size_t)r->stages * row + (size_t)l->n] == DBL_MAX) {
        st = too_few(l, b, r->stages);
        goto out;
    }
    for (int s = r->stages, place = l->n; s > 0; s--)
        cuts[s - 1] = place = from[(size_t)s * row + (size_t)place];
    st = LS_OK;
out:
    ls_free(b);
    ls_free(most);
    ls_free(from);
    return st;
}

/* --- named cuts --------------------------------------------------------------------------------------------------- */

static bool is_layer(const char *layer, const char *name, int length)
{
    return strncmp(layer, name, (size_t)length) == 0 && (layer[length] == 0 || layer[length] == '.');
}

/* The place that a name means, or the number of layers. '#' and a number: before that layer, where names are not unique. */
static int find_place(const struct ls_layers *l, const char *name, int length)
{
    int place = 0;
    if (length > 1 && name[0] == '#') {
        long number = strtol(name + 1, NULL, 10);
        return number > 0 && number < l->n ? (int)number : l->n;
    }
    while (place < l->n && !is_layer(l->list[place].name, name, length))
        place++;
    return place;
}

/* Names of layers before which the model can be cut, as many as fit. */
static void list_places(const struct ls_layers *l, char *text, size_t room)
{
    int all = ls_layers_sum(l, 0, l->n).trained, before = 0;
    size_t used = 0;
    text[0] = 0;
    for (int place = 0; place < l->n && used < room; before += l->list[place++].trained)
        if (l->list[place].can_cut && before > 0 && before < all)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "", l->list[place].name);
    if (used >= room)
        memcpy(text + room - 4, "...", 4);
}

static enum ls_status cut_before(const struct ls_layers *l, const char *name, int length, int *place)
{
    char names[256];
    *place = find_place(l, name, length);
    if (*place > 0 && *place < l->n && l->list[*place].can_cut)
        return LS_OK;
    list_places(l, names, sizeof names);
    return ls_fail(LS_USAGE, "pipeline: %s before '%.*s'; possible are: %s",
                   *place == l->n ? "there is no place" : "the model cannot be cut", length, name, names);
}

enum ls_status ls_cut_at(const struct ls_layers *l, int stages, const char *at, int length, int *cuts)
{
    const char *end = at + length;
    int n = 1;
    if (stages > LS_MOST_STAGES)
        return ls_fail(LS_USAGE, "pipeline:%d: at most %d stages are possible", stages, LS_MOST_STAGES);
    cuts[0] = 0;
    for (const char *name = at; name < end; n++) {
        const char *plus = memchr(name, '+', (size_t)(end - name));
        int of_name = (int)((plus ? plus : end) - name);
        if (n < stages) {
            LS_TRY(cut_before(l, name, of_name, &cuts[n]));
            if (cuts[n] <= cuts[n - 1] || ls_layers_sum(l, cuts[n - 1], cuts[n]).trained == 0)
                return ls_fail(LS_USAGE,
                               "pipeline: a stage that ends before '%.*s' would train nothing; name layers in their "
                               "order, with trained parameters between them",
                               of_name, name);
        }
        name += of_name + (plus != NULL);
    }
    if (n != stages)
        return ls_fail(LS_USAGE, "pipeline:%d: %d layers are named, but %d stages begin at %d of them", stages, n - 1,
                       stages, stages - 1);
    if (ls_layers_sum(l, cuts[n - 1], l->n).trained == 0)
        return ls_fail(LS_USAGE, "pipeline:%d: the last stage would train nothing", stages);
    return LS_OK;
}

char *ls_cut_names(const struct ls_layers *l, int stages, const int *cuts)
{
    char *text = ls_strdup("");
    for (int s = 1; s < stages && text; s++) {
        const char *name = l->list[cuts[s]].name, *plus = s > 1 ? "+" : "";
        bool plain = !strpbrk(name, "+,@#") && find_place(l, name, (int)strlen(name)) == cuts[s];
        char *longer = plain ? ls_format("%s%s%s", text, plus, name) : ls_format("%s%s#%d", text, plus, cuts[s]);
        ls_free(text);
        text = longer;
    }
    return text;
}
