#include "data/data.h"
#include "base/random.h"

/* A Feistel network over the smallest grid of rows x columns that covers 0 .. count-1. Each round adds a keyed hash of one
 * coordinate to the other. That is invertible, so the result is a permutation of the grid. A value outside of the set goes
 * through the network again until it falls inside; this is rare. */
#define ROUNDS 8

static uint64_t hash(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* Maps 64 hashed bits evenly to 0 .. limit-1. */
static uint64_t reduce(uint64_t bits, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)bits * limit) >> 64);
}

static uint64_t add_within(uint64_t x, uint64_t y, uint64_t limit)
{
    uint64_t sum = x + y;
    return sum >= limit ? sum - limit : sum;
}

static uint64_t root(uint64_t count)
{
    uint64_t low = 1, high = (uint64_t)1 << 32;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (middle * middle >= count)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int64_t ls_sampler_at(const struct ls_sampler *s, uint64_t epoch, int64_t position)
{
    if (s->samples)
        return s->samples[position];
    if (!s->shuffle || s->count < 2)
        return position;
    uint64_t key[ROUNDS], stream = ls_random_stream(LS_RANDOM_SHUFFLE, epoch, 0, 0);
    for (int k = 0; k < ROUNDS; k += 2) {
        uint32_t r[4];
        ls_philox(s->seed, stream, (uint64_t)k, r);
        key[k] = (uint64_t)r[0] << 32 | r[1];
        key[k + 1] = (uint64_t)r[2] << 32 | r[3];
    }
    uint64_t count = (uint64_t)s->count, columns = root(count), rows = (count + columns - 1) / columns;
    uint64_t value = (uint64_t)position;
    do {
        uint64_t row = value / columns, column = value % columns;
        for (int k = 0; k < ROUNDS; k += 2) {
            row = add_within(row, reduce(hash(column + key[k]), rows), rows);
            column = add_within(column, reduce(hash(row + key[k + 1]), columns), columns);
        }
        value = row * columns + column;
    } while (value >= count);
    return (int64_t)value;
}
