#define _DEFAULT_SOURCE /* be64toh */
#include "base/memory.h"
#include "data/image/jpeg/jpeg_look.h"

#include <endian.h>
#include <string.h>

/* The head of libjpeg-turbo's private struct jpeg_entropy_decoder, the same in all its versions and in libjpeg 6b. */
struct entropy_head {
    void (*start_pass)(j_decompress_ptr jpeg);
    boolean (*decode_mcu)(j_decompress_ptr jpeg, JBLOCKROW *blocks);
};

/* More than the bytes of an MCU: 10 blocks of 64 codes with values. Damaged data is read so far behind its end. */
enum { BEHIND = 4096 };

/* The place in a block of the coefficient before the k-th in the order of the file. */
static const uint8_t place_before[65] = {
    0,  0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40,
    48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15,
    23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

/* --- bits --------------------------------------------------------------------------------------------- */

/* Makes at least 56 bits available. Bits in the buffer beyond `have` are right, too: the next refill puts the same there. */
static inline __attribute__((always_inline)) void refill(struct ls_jpeg_bits *b)
{
    uint64_t next;
    memcpy(&next, b->at, sizeof next);
    b->buffer |= be64toh(next) >> b->have;
    b->at += (63 - b->have) >> 3;
    b->have |= 56;
}

static __attribute__((noreturn, noinline)) void give_up(struct ls_jpeg_huffman *h)
{
    h->failed = true;
    longjmp(*h->out, 1);
}

/* Returns the entry of a code that is longer than a look. */
static __attribute__((noinline)) ls_jpeg_look long_code(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
                                                        uint64_t buffer)
{
    int length = LOOK + 1, code = (int)(buffer >> (64 - LOOK - 1));
    for (; code > t->last[length]; length++)
        code = (int)(buffer >> (63 - length));
    if (length > LONGEST || t->first[length] + code < 0 || t->first[length] + code > 255)
        give_up(h);
    return look_of(length, t->of.huffval[t->first[length] + code]);
}

static inline __attribute__((always_inline)) void take(struct ls_jpeg_bits *b, int bits)
{
    b->buffer <<= bits & 63;
    b->have -= bits;
}

/* --- blocks ------------------------------------------------------------------------------------------- */

/* Ends a block whose last look, at the bits `b`, leads from coefficient k to its end or beyond. */
static inline __attribute__((always_inline)) void end_block(struct ls_jpeg_huffman *h, struct ls_jpeg_bits *b,
                                                            ls_jpeg_look l, size_t k, JCOEF *block)
{
    size_t first = k + part(l, SKIP), both = k + part(l, BOTH);
    bool is_first = first == DCTSIZE2 || part(l, SKIP) == LS_JPEG_ENDS;
    if (block && first <= DCTSIZE2)
        block[place_before[first]] = (JCOEF)value_of(b->buffer << part(l, LENGTH), part(l, REST));
    if (block && !is_first && both == DCTSIZE2)
        block[DCTSIZE2 - 1] = (JCOEF)(l >> SECOND);
    if (!is_first && both > DCTSIZE2 && (first > DCTSIZE2 || both < LS_JPEG_ENDS))
        give_up(h);
    take(b, (int)part(l, is_first ? FIRST : 0));
}

/* Reads the AC coefficients from the k-th on. */
static inline __attribute__((always_inline)) void read_ac(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
                                                          struct ls_jpeg_bits *b, size_t k, bool store, JCOEF *block)
{
    for (;;) {
        refill(b);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) { /* at most 2 * (LONGEST + LARGEST) bits */
            ls_jpeg_look l = t->look[b->buffer >> (64 - LOOK)];
            if (__builtin_expect(k + part(l, BOTH) >= DCTSIZE2, 0)) {
                if (l == LONG_CODE)
                    l = long_code(h, t, b->buffer);
                if (k + part(l, BOTH) >= DCTSIZE2) {
                    end_block(h, b, l, k, store ? block : NULL);
                    return;
                }
            }
            if (store) {
                block[place_before[k + part(l, BOTH)]] = (JCOEF)(l >> SECOND);
                block[place_before[k + part(l, SKIP)]] =
                    (JCOEF)value_of(b->buffer << (l >> LENGTH & 63), (unsigned)(l >> REST & 63));
            }
            take(b, (int)part(l, 0));
            k += part(l, BOTH);
        }
    }
}

/* Passes over one code, or over the last codes of a block. Returns the number of the next coefficient, DCTSIZE2: none. */
static __attribute__((noinline)) size_t pass_slowly(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
                                                    struct ls_jpeg_bits *b, size_t k)
{
    ls_jpeg_look l = t->look[b->buffer >> (64 - LOOK)];
    if (l == LONG_CODE)
        l = long_code(h, t, b->buffer);
    if (k + part(l, SKIP) >= DCTSIZE2) {
        read_ac(h, t, b, k, false, NULL);
        return DCTSIZE2;
    }
    take(b, (int)part(l, FIRST));
    return k + part(l, SKIP);
}

/* Passes over the AC coefficients. */
static inline __attribute__((always_inline)) void pass_ac(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
                                                          struct ls_jpeg_bits *bits)
{
    struct ls_jpeg_bits b = *bits; /* in registers */
    for (size_t k = 1; k < DCTSIZE2;) {
        refill(&b);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) { /* at most 2 * (LONGEST + LARGEST) bits */
            struct ls_jpeg_pass p = t->pass[b.buffer >> (64 - PASS)];
            size_t after = k + p.advance;
            if (__builtin_expect(after >= DCTSIZE2, 0)) {
                if (after - LS_JPEG_ENDS < DCTSIZE2) {
                    take(&b, p.bits);
                    k = DCTSIZE2;
                } else {
                    *bits = b;
                    k = pass_slowly(h, t, bits, k);
                    b = *bits;
                }
                break;
            }
            take(&b, p.bits);
            k = after;
        }
    }
    *bits = b;
}

static inline __attribute__((always_inline)) int read_dc(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
                                                         struct ls_jpeg_bits *b)
{
    refill(b);
    ls_jpeg_look l = t->look[b->buffer >> (64 - LOOK)];
    if (__builtin_expect(l == LONG_CODE, 0))
        l = long_code(h, t, b->buffer);
    int value = value_of(b->buffer << part(l, LENGTH), part(l, REST));
    take(b, (int)part(l, 0));
    return value;
}

/* The columns of MCUs that are not wanted are only parsed. */
static inline __attribute__((always_inline)) boolean decode(j_decompress_ptr jpeg, JBLOCKROW *blocks)
{
    struct ls_jpeg_huffman *h = jpeg->client_data;
    struct ls_jpeg_bits b = h->bits;
    bool wanted = blocks && h->column >= h->first_column && h->column <= h->last_column;
    for (int i = 0; i < jpeg->blocks_in_MCU; i++) {
        const struct ls_jpeg_block *of = &h->blocks[i];
        unsigned dc = (unsigned)h->dc_value[of->component] + (unsigned)read_dc(h, of->dc, &b);
        h->dc_value[of->component] = (int)dc;
        if (wanted) {
            blocks[i][0][0] = (JCOEF)dc;
            read_ac(h, of->ac, &b, 1, true, blocks[i][0]);
        } else
            pass_ac(h, of->ac, &b);
    }
    if (b.at - b.have / 8 > h->end)
        give_up(h);
    h->bits = b;
    h->column = h->column + 1 < jpeg->MCUs_per_row ? h->column + 1 : 0;
    return TRUE;
}

static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *blocks)
{
    return decode(jpeg, blocks);
}

#ifdef __x86_64__
/* Shifts by a variable are cheaper there. */
__attribute__((target("bmi2"))) static boolean decode_mcu_bmi2(j_decompress_ptr jpeg, JBLOCKROW *blocks)
{
    return decode(jpeg, blocks);
}
#endif

/* --- taking over -------------------------------------------------------------------------------------- */

static bool suits(const struct jpeg_decompress_struct *jpeg)
{
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
    return jpeg->data_precision == 8 && !jpeg->progressive_mode && !jpeg->arith_code && jpeg->restart_interval == 0 &&
           jpeg->comps_in_scan == jpeg->num_components && jpeg->num_components <= LS_JPEG_COMPONENTS;
#else
    (void)jpeg;
    return false;
#endif
}

/* Copies the data up to the next marker. Returns false if there is no memory. */
static bool copy_data(struct ls_jpeg_huffman *h, const uint8_t *from, size_t bytes)
{
    struct ls_jpeg_tables *t = h->tables;
    const uint8_t *end = from + bytes;
    if (bytes + BEHIND > t->room) {
        ls_free(t->data);
        t->room = 0;
        t->data = ls_alloc(2 * bytes + BEHIND, 1);
        if (!t->data)
            return false;
        t->room = 2 * bytes + BEHIND;
    }
    uint8_t *to = t->data;
    for (;;) {
        const uint8_t *found = memchr(from, 0xff, (size_t)(end - from));
        bool more = found && end - found > 1 && found[1] == 0;
        size_t n = (size_t)((found ? found : end) - from) + more;
        memcpy(to, from, n);
        to += n;
        h->marker = from + n;
        if (!more)
            break;
        from = found + 2;
    }
    memset(to, 0, BEHIND);
    h->end = to;
    return true;
}

/* Returns the width of an MCU in the output. */
static JDIMENSION mcu_width(const struct jpeg_decompress_struct *jpeg)
{
#if JPEG_LIB_VERSION >= 70
    int scaled = jpeg->min_DCT_h_scaled_size;
#else
    int scaled = jpeg->min_DCT_scaled_size;
#endif
    return (JDIMENSION)(jpeg->comps_in_scan == 1 ? scaled : scaled * jpeg->max_h_samp_factor);
}

void ls_jpeg_huffman_begin(struct ls_jpeg_huffman *h, struct jpeg_decompress_struct *jpeg, JDIMENSION first,
                           JDIMENSION width)
{
    h->began = false;
    if (!suits(jpeg) || h->failed)
        return;
    if (!ls_jpeg_tables_make(h->tables, jpeg) || !copy_data(h, jpeg->src->next_input_byte, jpeg->src->bytes_in_buffer))
        return;
    h->bits = (struct ls_jpeg_bits){.at = h->tables->data};
    memset(h->dc_value, 0, sizeof h->dc_value);
    for (int i = 0; i < jpeg->blocks_in_MCU; i++) {
        int component = jpeg->MCU_membership[i];
        const jpeg_component_info *info = jpeg->cur_comp_info[component];
        h->blocks[i] = (struct ls_jpeg_block){
            .dc = &h->tables->dc[info->dc_tbl_no], .ac = &h->tables->ac[info->ac_tbl_no], .component = component};
    }
    /* Upsampling looks at the neighbours of a column. */
    JDIMENSION each = mcu_width(jpeg);
    h->column = 0;
    h->first_column = first / each > 0 ? first / each - 1 : 0;
    h->last_column = (first + width) / each + 1;
    h->began = true;
    struct entropy_head *entropy = (struct entropy_head *)(void *)jpeg->entropy;
    entropy->decode_mcu = decode_mcu;
#ifdef __x86_64__
    if (__builtin_cpu_supports("bmi2"))
        entropy->decode_mcu = decode_mcu_bmi2;
#endif
}

void ls_jpeg_huffman_end(struct ls_jpeg_huffman *h, struct jpeg_decompress_struct *jpeg)
{
    if (!h->began)
        return;
    jpeg->src->bytes_in_buffer -= (size_t)(h->marker - jpeg->src->next_input_byte);
    jpeg->src->next_input_byte = h->marker;
}
