/* The tables of the Huffman decoder, made from those of a file. */
#include "base/memory.h"
#include "data/image/jpeg/jpeg_look.h"

#include <string.h>

/* Adds the second coefficient to the entry of these bits if it fits. */
static void add_second(struct ls_jpeg_table *t, unsigned bits)
{
    ls_jpeg_look l = t->look[bits];
    if (l == LONG_CODE || part(l, 0) >= LOOK || part(l, SKIP) == LS_JPEG_ENDS)
        return;
    ls_jpeg_look next = t->look[bits << part(l, FIRST) & ((1u << LOOK) - 1)];
    unsigned both = part(l, FIRST) + part(next, FIRST);
    if (next == LONG_CODE || both > LOOK)
        return;
    uint64_t value = (uint64_t)bits << (64 - LOOK) << (part(l, FIRST) + part(next, LENGTH));
    uint16_t second = (uint16_t)value_of(value, part(next, REST));
    l = l >> SKIP << SKIP | both | (uint64_t)(part(l, SKIP) + part(next, SKIP)) << BOTH;
    t->look[bits] = l | (uint64_t)second << SECOND;
}

/* Goes from code to code as far as their bits are known. The bits of values need not be. */
static struct ls_jpeg_pass pass_of(const struct ls_jpeg_table *t, unsigned bits)
{
    unsigned used = 0, advance = 0;
    while (used < PASS) {
        ls_jpeg_look l = t->look[(bits << used & ((1u << PASS) - 1)) >> (PASS - LOOK)];
        if (l == LONG_CODE || used + part(l, LENGTH) > PASS)
            break;
        used += part(l, FIRST);
        if (part(l, SKIP) == LS_JPEG_ENDS)
            return (struct ls_jpeg_pass){(uint8_t)used, (uint8_t)(LS_JPEG_ENDS + advance)};
        advance += part(l, SKIP);
        if (advance >= DCTSIZE2)
            return (struct ls_jpeg_pass){0, 255};
    }
    return (struct ls_jpeg_pass){(uint8_t)used, (uint8_t)(used ? advance : 255)};
}

/* Codes of each length are consecutive numbers. The symbol of an AC code is run * 16 + size, that of a DC code the size.
 * pairs: values follow each other, as those of AC codes do. */
static void make_table(struct ls_jpeg_table *t, const JHUFF_TBL *of, bool pairs)
{
    int code = 0, symbols = 0;
    t->made = t->usual = true;
    t->of = *of;
    for (int i = 0; i < 1 << LOOK; i++)
        t->look[i] = LONG_CODE;
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
    for (unsigned bits = 0; pairs && bits < 1u << PASS; bits++)
        t->pass[bits] = pass_of(t, bits);
    for (unsigned bits = 0; pairs && bits < 1u << LOOK; bits++)
        add_second(t, bits);
}

static bool need_table(struct ls_jpeg_table *t, const JHUFF_TBL *of, bool pairs)
{
    if (!t->made || memcmp(t->of.bits, of->bits, sizeof of->bits) != 0 ||
        memcmp(t->of.huffval, of->huffval, sizeof of->huffval) != 0)
        make_table(t, of, pairs);
    return t->usual;
}

bool ls_jpeg_tables_make(struct ls_jpeg_tables *tables, const struct jpeg_decompress_struct *jpeg)
{
    for (int c = 0; c < jpeg->comps_in_scan; c++) {
        int dc = jpeg->cur_comp_info[c]->dc_tbl_no, ac = jpeg->cur_comp_info[c]->ac_tbl_no;
        if (dc > 1 || ac > 1 || !need_table(&tables->dc[dc], jpeg->dc_huff_tbl_ptrs[dc], false) ||
            !need_table(&tables->ac[ac], jpeg->ac_huff_tbl_ptrs[ac], true))
            return false;
    }
    return true;
}

void ls_jpeg_tables_free(struct ls_jpeg_tables *tables)
{
    if (tables)
        ls_free(tables->data);
    ls_free(tables);
}
