/* A faster Huffman decoder for libjpeg-turbo.
 *
 * More than half of the time of a JPEG decoder goes into Huffman codes. This decoder takes that part over for baseline
 * files and leaves all else, the inverse DCT, upsampling and colours, to libjpeg-turbo. One look into a table gives the
 * bits of a code and of the value behind it, and often a second coefficient. Hardly any branch depends on the data, as
 * a branch that is mispredicted takes longer than a coefficient. It yields the same coefficients, so the pixels are the
 * same bits.
 *
 * Whatever is unusual ends it (`failed`): a code that does not exist, data that ends early. The caller then decodes the file
 * again without it, so that libjpeg-turbo alone decides what is damaged. */
#ifndef LS_DATA_IMAGE_JPEG_HUFFMAN_H
#define LS_DATA_IMAGE_JPEG_HUFFMAN_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <jpeglib.h>

enum {
    LS_JPEG_LOOK = 10 /* bits of a look into a table */,
    LS_JPEG_PASS = 12 /* and of one that passes over codes */,
    LS_JPEG_COMPONENTS = 4,
    LS_JPEG_ENDS = 128
};

/* What the next LS_JPEG_LOOK bits begin with: a code, and where they fit, the code and the value of a second coefficient. It
 * is one word, because one load is faster than many. From the lowest bit, 8 bits each:
 *   bits    of all codes and values; 0: the code is longer than LS_JPEG_LOOK
 *   both    coefficients up to and with the second; as `skip` if there is none; 255: the code is longer
 *   skip    coefficients up to and with the first; LS_JPEG_ENDS: the block ends
 *   first   bits of the first code and its value
 *   length  bits of the first code
 *   rest    63 less the bits of the first value
 * and 16 bits: the second value. */
typedef uint64_t ls_jpeg_look;

/* The codes that begin and end within the next LS_JPEG_PASS bits, up to the end of a block: for blocks that are not wanted. */
struct ls_jpeg_pass {
    uint8_t bits;    /* of all these codes and their values */
    uint8_t advance; /* coefficients; LS_JPEG_ENDS more: the block ends; 255: the first code is longer */
};

struct ls_jpeg_table {
    ls_jpeg_look look[1 << LS_JPEG_LOOK];
    struct ls_jpeg_pass pass[1 << LS_JPEG_PASS]; /* of AC codes */
    JHUFF_TBL of;                                /* what the table was made from */
    int32_t last[18];  /* the last code of each length, -1: none; last[17] is larger than any code */
    int32_t first[17]; /* index in the symbols of the code 0 of each length, had it one */
    bool made, usual;  /* usual: no values are larger than those of baseline files */
};

/* The memory of a thread. Most files have the same tables, so they are kept. */
struct ls_jpeg_tables {
    struct ls_jpeg_table dc[2], ac[2];
    uint8_t *data; /* owned; the data of a file without the zeros that follow each 0xff in it */
    size_t room;
    bool off; /* libjpeg-turbo decodes all; for tests that compare */
};
/* Makes the tables of the scan that begins. Returns false if they are not those of a baseline file. */
bool ls_jpeg_tables_make(struct ls_jpeg_tables *tables, const struct jpeg_decompress_struct *jpeg);
/* Takes NULL. */
void ls_jpeg_tables_free(struct ls_jpeg_tables *tables);

/* The position in the data. */
struct ls_jpeg_bits {
    uint64_t buffer; /* the next bits, the first one highest */
    const uint8_t *at;
    int have; /* number of bits that count */
};

struct ls_jpeg_huffman {
    jmp_buf *out; /* borrowed; where a failure goes */
    bool began, failed;
    struct ls_jpeg_tables *tables; /* borrowed */
    struct ls_jpeg_bits bits;
    const uint8_t *end;    /* of the data; zeros follow */
    const uint8_t *marker; /* behind the data in the file */
    int dc_value[LS_JPEG_COMPONENTS];
    struct ls_jpeg_block { /* of an MCU */
        const struct ls_jpeg_table *dc, *ac;
        int component;
    } blocks[D_MAX_BLOCKS_IN_MCU];
    /* MCUs outside of these columns are passed over */
    JDIMENSION column, first_column, last_column;
};

/* Takes over from the Huffman decoder of libjpeg-turbo where the file suits. Call it after jpeg_start_decompress and
 * jpeg_crop_scanline, which gave columns first .. first+width-1 of the output. jpeg->client_data must point to a struct whose
 * first member is `h`, with `out` and `tables` set. */
void ls_jpeg_huffman_begin(struct ls_jpeg_huffman *h, struct jpeg_decompress_struct *jpeg, JDIMENSION first,
                           JDIMENSION width);
/* Gives the rest of the data back to libjpeg-turbo, for jpeg_finish_decompress. */
void ls_jpeg_huffman_end(struct ls_jpeg_huffman *h, struct jpeg_decompress_struct *jpeg);

#endif
