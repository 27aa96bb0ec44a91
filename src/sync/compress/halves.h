/* Codecs that convert each value to 16 bits independently. The including file first defines
 *     vh narrow(vf), vf widen(vh)
 * This header then defines encode, decode, decode_add and bytes. */
#ifndef LS_COMPRESS_HALVES_H
#define LS_COMPRESS_HALVES_H

INLINE vh load_halves(const uint16_t *p)
{
    vh v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE vh load_some_halves(const uint16_t *p, size_t n)
{
    vh v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

static size_t bytes(size_t count)
{
    return (count + 1) / 2 * 4;
}

static void encode(const float *values, float *feedback, size_t count, void *wire)
{
    (void)feedback;
    uint16_t *out = wire;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vh h = narrow(load(values + i));
        memcpy(out + i, &h, sizeof h);
    }
    if (i < count) {
        vh h = narrow(load_some(values + i, count - i));
        memcpy(out + i, &h, bytes(count - i)); /* an odd count is padded with a zero */
    }
}

static void decode(const void *wire, size_t count, float *values)
{
    const uint16_t *in = wire;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store(values + i, widen(load_halves(in + i)));
    if (i < count)
        store_some(values + i, widen(load_some_halves(in + i, count - i)), count - i);
}

static void decode_add(const void *wire, size_t count, float *values)
{
    const uint16_t *in = wire;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store(values + i, load(values + i) + widen(load_halves(in + i)));
    if (i < count) {
        vf sum = load_some(values + i, count - i) + widen(load_some_halves(in + i, count - i));
        store_some(values + i, sum, count - i);
    }
}

#endif
