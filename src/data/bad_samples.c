#include "data/dataset.h"
#include "base/memory.h"

/* Returns the place of the sample in the sorted list, or the place where it belongs. */
static int64_t place_of(const struct ls_bad_samples *bad, int64_t sample)
{
    int64_t low = 0, high = bad->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (bad->list[middle].sample < sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(struct ls_bad_samples *bad)
{
    if (bad->count < bad->room)
        return true;
    int64_t room = bad->room ? 2 * bad->room : 64;
    struct ls_bad_sample *larger = ls_realloc(bad->list, (size_t)bad->room, (size_t)room, sizeof *larger);
    if (!larger)
        return false;
    bad->list = larger;
    bad->room = room;
    return true;
}

/* Adds a sample that is not known yet. Returns its entry, or NULL without memory. */
static struct ls_bad_sample *find(struct ls_bad_samples *bad, int64_t sample)
{
    int64_t at = place_of(bad, sample);
    if (at < bad->count && bad->list[at].sample == sample)
        return &bad->list[at];
    if (!make_room(bad))
        return NULL;
    for (int64_t i = bad->count++; i > at; i--)
        bad->list[i] = bad->list[i - 1];
    bad->list[at] = (struct ls_bad_sample){.sample = sample};
    return &bad->list[at];
}

void ls_dataset_note_bad(struct ls_dataset *set, int64_t sample)
{
    pthread_mutex_lock(&set->bad.lock);
    (void)find(&set->bad, sample);
    pthread_mutex_unlock(&set->bad.lock);
}

bool ls_dataset_take_bad(struct ls_dataset *set, int64_t sample)
{
    pthread_mutex_lock(&set->bad.lock);
    struct ls_bad_sample *entry = find(&set->bad, sample);
    bool fresh = entry && !entry->taken;
    if (entry)
        entry->taken = true;
    pthread_mutex_unlock(&set->bad.lock);
    return fresh;
}

bool ls_dataset_next_bad(struct ls_dataset *set, int64_t *sample)
{
    struct ls_bad_samples *bad = &set->bad;
    bool found = false;
    pthread_mutex_lock(&bad->lock);
    for (int64_t i = 0; i < bad->count && !found; i++)
        if (!bad->list[i].taken) {
            bad->list[i].taken = found = true;
            *sample = bad->list[i].sample;
        }
    pthread_mutex_unlock(&bad->lock);
    return found;
}

int64_t ls_dataset_bad_count(struct ls_dataset *set)
{
    pthread_mutex_lock(&set->bad.lock);
    int64_t count = set->bad.count;
    pthread_mutex_unlock(&set->bad.lock);
    return count;
}
