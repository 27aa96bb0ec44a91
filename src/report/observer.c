#include "report/observer.h"

#define X(name) extern const struct ls_observer_ops ls_observer_##name;
#include "report/observers.def"

static const struct ls_observer_ops *const observers[LS_OBSERVERS] = {
#define X(name) &ls_observer_##name,
#include "report/observers.def"
};

enum ls_status ls_observers_open(struct ls_observers *all, const struct ls_run_facts *facts)
{
    *all = (struct ls_observers){0};
    for (int i = 0; i < LS_OBSERVERS; i++) {
        enum ls_status st = observers[i]->wanted(facts) ? observers[i]->open(facts, &all->self[i]) : LS_OK;
        if (st != LS_OK) {
            ls_observers_close(all, st);
            return st;
        }
    }
    return LS_OK;
}

bool ls_observers_want_values(const struct ls_observers *all)
{
    bool any = false;
    for (int i = 0; i < LS_OBSERVERS; i++)
        any |= all->self[i] && observers[i]->values;
    return any;
}

bool ls_observers_want_images(const struct ls_observers *all)
{
    bool any = false;
    for (int i = 0; i < LS_OBSERVERS; i++)
        any |= all->self[i] && observers[i]->image;
    return any;
}

enum ls_status ls_observers_report(struct ls_observers *all, enum ls_metrics_kind kind, const struct ls_report *r)
{
    for (int i = 0; i < LS_OBSERVERS; i++)
        if (all->self[i])
            LS_TRY(observers[i]->report(all->self[i], kind, r));
    return LS_OK;
}

enum ls_status ls_observers_values(struct ls_observers *all, int64_t step, const char *name, const float *values,
                                   int64_t count)
{
    for (int i = 0; i < LS_OBSERVERS; i++)
        if (all->self[i] && observers[i]->values)
            LS_TRY(observers[i]->values(all->self[i], step, name, values, count));
    return LS_OK;
}

enum ls_status ls_observers_image(struct ls_observers *all, const struct ls_observed_image *image)
{
    for (int i = 0; i < LS_OBSERVERS; i++)
        if (all->self[i] && observers[i]->image)
            LS_TRY(observers[i]->image(all->self[i], image));
    return LS_OK;
}

enum ls_status ls_observers_sync(struct ls_observers *all)
{
    for (int i = 0; i < LS_OBSERVERS; i++)
        if (all->self[i])
            LS_TRY(observers[i]->sync(all->self[i]));
    return LS_OK;
}

enum ls_status ls_observers_close(struct ls_observers *all, enum ls_status ended)
{
    enum ls_status st = LS_OK;
    for (int i = 0; i < LS_OBSERVERS; i++) {
        enum ls_status closed = all->self[i] ? observers[i]->close(all->self[i], ended) : LS_OK;
        st = st == LS_OK ? closed : st;
        all->self[i] = NULL;
    }
    return st;
}
