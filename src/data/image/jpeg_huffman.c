#define _DEFAULT_SOURCE /* be64toh */
#include "data/image/jpeg_huffman.h"
#include "base/memory.h"

#include <endian.h>
#include <string.h>

/* The head of libjpeg-turbo's private struct jpeg_entropy_decoder, the same in all its versions and in libjpeg 6b. */
struct entropy_head {
    void (*start_pass)(j_decompress_ptr jpeg);
    boolean (*decode_mcu)(j_decompress_ptr jpeg, JBLOCKROW *blocks);
};

enum { LOOK = LS_JPEG_LOOK, LONGEST = 16 /* bits of a code */, LARGEST = 11 /* bits of a value */ };
/* More than the bytes of an MCU: 10 blocks of 64 codes with values. Damaged data is read so far behind its end. */
enum { BEHIND = 4096 };

/* The place in a block of the coefficient before the k-th in the order of the file. */
static const uint8_t place_before[65] = {
    0,  0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40,
    48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15,
    23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

/* --- tables ------------------------------------------------------------------------------------------- */

static inline uint8_t skip_of(int symbol)
{
    return (uint8_t)((symbol & 15) == 0 && symbol != 0xf0 ? LS_JPEG_ENDS : 1 + (symbol >> 4));
}

static inline struct ls_jpeg_look look_of(int length, int symbol)
{
    uint8_t size = symbol & 15, bits = (uint8_t)(length + size), skip = skip_of(symbol);
    return (struct ls_jpeg_look){bits, skip, skip, bits, (uint8_t)length, size, 0};
}

/* Returns the value that the first `size` bits stand for. One that begins with a 0 is negative: its bits less 2^size - 1. */
static inline __attribute__((always_inline)) int value_of(uint64_t bits, unsigned size)
{
    uint32_t below = (1u << size) - 1, negative = (uint32_t)(bits >> 63) - 1;
    return (int)((uint32_t)(bits >> 1 >> (63 - size)) - (below & negative));
}

/* Adds the second coefficient to the entry of these bits if it fits. */
static void add_second(struct ls_jpeg_table *t, unsigned bits)
{
    struct ls_jpeg_look *l = &t->look[bits];
    if (l->bits == 0 || l->bits >= LOOK || l->skip == LS_JPEG_ENDS)
        return;
    const struct ls_jpeg_look *next = &t->look[bits << l->first & ((1u << LOOK) - 1)];
    if (next->bits == 0 || l->first + next->first > LOOK)
        return;
    l->second = (int16_t)value_of((uint64_t)bits << (64 - LOOK) << (l->first + next->length), next->size);
    l->both = (uint8_t)(l->skip + next->skip);
    l->bits = (uint8_t)(l->first + next->first);
}

/* Codes of each length are consecutive numbers. The symbol of an AC code is run * 16 + size, that of a DC code the size.
 * pairs: values follow each other, as those of AC codes do. */
static void make_table(struct ls_jpeg_table *t, const JHUFF_TBL *of, bool pairs)
{
    int code = 0, symbols = 0;
    t->made = t->usual = true;
    t->of = *of;
    memset(t->look, 0, sizeof t->look);
    for (int length = 1; length <= LONGEST; length++, code <<= 1) {
        t->first[length] = symbols - code;
        for (int i = 0; i < of->bits[length]; i++, code++, symbols++) {
            int symbol = of->huffval[symbols];
            t->usual = t->usual && (symbol & 15) <= LARGEST;
            for (int k = code << LOOK >> length; length <= LOOK && k < (code + 1) << LOOK >> length; k++)
                t->look[k] = look_of(length, symbol);
        }
        t->last[length] = of->bits[length] > 0 ? code - 1 : -1;
    }
    t->last[LONGEST + 1] = INT32_MAX;
    for (unsigned bits = 0; pairs && bits < 1u << LOOK; bits++)
        add_second(t, bits);
}

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
static __attribute__((noinline)) struct ls_jpeg_look long_code(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
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
                                                            struct ls_jpeg_look l, size_t k, JCOEF *block)
{
    size_t first = k + l.skip, both = k + l.both;
    bool is_first = first == DCTSIZE2 || l.skip == LS_JPEG_ENDS;
    if (block && first <= DCTSIZE2)
        block[place_before[first]] = (JCOEF)value_of(b->buffer << l.length, l.size);
    if (block && !is_first && both == DCTSIZE2)
        block[DCTSIZE2 - 1] = l.second;
    if (!is_first && both > DCTSIZE2 && (first > DCTSIZE2 || both < LS_JPEG_ENDS))
        give_up(h);
    take(b, is_first ? l.first : l.bits);
}

/* Reads the AC coefficients. */
static inline __attribute__((always_inline)) void read_ac(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
                                                          struct ls_jpeg_bits *b, bool store, JCOEF *block)
{
    for (size_t k = 1;;) {
        refill(b);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) { /* at most 2 * (LONGEST + LARGEST) bits */
            struct ls_jpeg_look l = t->look[b->buffer >> (64 - LOOK)];
            if (__builtin_expect(l.bits == 0, 0))
                l = long_code(h, t, b->buffer);
            if (__builtin_expect(k + l.both >= DCTSIZE2, 0)) {
                end_block(h, b, l, k, store ? block : NULL);
                return;
            }
            if (store) {
                block[place_before[k + l.both]] = l.second;
                block[place_before[k + l.skip]] = (JCOEF)value_of(b->buffer << l.length, l.size);
            }
            take(b, l.bits);
            k += l.both;
        }
    }
}

static inline __attribute__((always_inline)) int read_dc(struct ls_jpeg_huffman *h, const struct ls_jpeg_table *t,
                                                         struct ls_jpeg_bits *b)
{
    refill(b);
    struct ls_jpeg_look l = t->look[b->buffer >> (64 - LOOK)];
    if (__builtin_expect(l.bits == 0, 0))
        l = long_code(h, t, b->buffer);
    int value = value_of(b->buffer << l.length, l.size);
    take(b, l.bits);
    return value;
}

/* The columns of MCUs that are not wanted are only parsed. */
static inline __attribute__((always_inline)) boolean decode(j_decompress_ptr jpeg, JBLOCKROW *blocks)
{
    struct ls_jpeg_huffman *h = jpeg->client_data;
    struct ls_jpeg_bits b = h->bits;
    bool wanted = blocks && h->column >= h->first_column && h->column <= h->last_column;
    for (int i = 0; i < jpeg->blocks_in_MCU; i++) {
        int component = jpeg->MCU_membership[i];
        const jpeg_component_info *info = jpeg->cur_comp_info[component];
        int difference = read_dc(h, &h->tables->dc[info->dc_tbl_no], &b);
        h->dc_value[component] = (int)((unsigned)h->dc_value[component] + (unsigned)difference);
        if (wanted) {
            blocks[i][0][0] = (JCOEF)h->dc_value[component];
            read_ac(h, &h->tables->ac[info->ac_tbl_no], &b, true, blocks[i][0]);
        } else
            read_ac(h, &h->tables->ac[info->ac_tbl_no], &b, false, NULL);
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

static bool need_table(struct ls_jpeg_table *t, const JHUFF_TBL *of, bool pairs)
{
    if (!t->made || memcmp(t->of.bits, of->bits, sizeof of->bits) != 0 ||
        memcmp(t->of.huffval, of->huffval, sizeof of->huffval) != 0)
        make_table(t, of, pairs);
    return t->usual;
}

/* Returns false if the tables are not those of a baseline file. */
static bool make_tables(struct ls_jpeg_huffman *h, const struct jpeg_decompress_struct *jpeg)
{
    for (int c = 0; c < jpeg->comps_in_scan; c++) {
        int dc = jpeg->cur_comp_info[c]->dc_tbl_no, ac = jpeg->cur_comp_info[c]->ac_tbl_no;
        if (dc > 1 || ac > 1 || !need_table(&h->tables->dc[dc], jpeg->dc_huff_tbl_ptrs[dc], false) ||
            !need_table(&h->tables->ac[ac], jpeg->ac_huff_tbl_ptrs[ac], true))
            return false;
    }
    return true;
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

void ls_jpeg_tables_free(struct ls_jpeg_tables *tables)
{
    if (tables)
        ls_free(tables->data);
    ls_free(tables);
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
    if (!make_tables(h, jpeg) || !copy_data(h, jpeg->src->next_input_byte, jpeg->src->bytes_in_buffer))
        return;
    h->bits = (struct ls_jpeg_bits){.at = h->tables->data};
    memset(h->dc_value, 0, sizeof h->dc_value);
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
