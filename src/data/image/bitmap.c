/* Binary PPM/PGM and uncompressed BMP. */
#include "data/dataset.h"

#include <string.h>

/* --- PPM: "P6 WIDTH HEIGHT MAXVAL" in text, one white space, the samples ------------------------------ */

struct cursor {
    const uint8_t *at, *end;
};

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Parses a number after white space and # comments; -1 if there is none or it is too large. */
static int64_t next_number(struct cursor *c)
{
    while (c->at < c->end && (is_space(*c->at) || *c->at == '#')) {
        if (*c->at == '#')
            while (c->at < c->end && *c->at != '\n')
                c->at++;
        else
            c->at++;
    }
    int64_t number = -1;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        number = (number < 0 ? 0 : number) * 10 + (*c->at - '0');
        if (number > 1000000)
            return -1;
    }
    return number;
}

enum ls_status ls_ppm_decode(const uint8_t *bytes, size_t size, struct ls_image *image)
{
    struct cursor c = {bytes + 2, bytes + size};
    if (bytes[1] != '5' && bytes[1] != '6')
        return ls_image_refuse(image, "a P%c file: only binary PPM (P6) and PGM (P5) are read", bytes[1]);
    int channels = bytes[1] == '6' ? 3 : 1;
    int64_t width = next_number(&c), height = next_number(&c), most = next_number(&c);
    if (width < 0 || height < 0 || most < 1 || most > 65535 || c.at == c.end || !is_space(*c.at))
        return ls_image_refuse(image, "bad PPM header near byte %zu: expected width, height and 1 to 65535",
                               (size_t)(c.at - bytes));
    c.at++;
    LS_TRY(ls_image_check_size(image, height, width));
    size_t samples = (size_t)channels * (size_t)height * (size_t)width, wide = most > 255 ? 2 : 1;
    if ((size_t)(c.end - c.at) < samples * wide)
        return ls_image_refuse(image, "truncated PPM: %zu bytes of pixels, expected %zu", (size_t)(c.end - c.at),
                               samples * wide);
    LS_TRY(ls_image_reserve(image, channels, (int)height, (int)width));
    if (most == 255) {
        memcpy(image->pixels, c.at, samples);
        return LS_OK;
    }
    for (size_t i = 0; i < samples; i++, c.at += wide) {
        int64_t v = wide == 2 ? c.at[0] << 8 | c.at[1] : c.at[0];
        v = (v * 255 + most / 2) / most;
        image->pixels[i] = (uint8_t)(v > 255 ? 255 : v);
    }
    return LS_OK;
}

/* --- BMP: little-endian headers, rows padded to 4 bytes, blue first, bottom row first ----------------- */

#define BMP_HEAD 54
#define BMP_BITFIELDS 3

static int64_t little_endian(const uint8_t *b, int bytes)
{
    int64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | b[i];
    return v;
}

/* The contents of the header. */
struct bmp {
    int64_t pixels_at, header_bytes, width, height, bits, compression, colours;
    bool top_down;
};

static enum ls_status read_header(const uint8_t *b, size_t size, struct bmp *bmp, struct ls_image *image)
{
    if (size < BMP_HEAD)
        return ls_image_refuse(image, "truncated BMP: %zu bytes", size);
    *bmp = (struct bmp){
        .pixels_at = little_endian(b + 10, 4),
        .header_bytes = little_endian(b + 14, 4),
        .width = (int32_t)little_endian(b + 18, 4),
        .height = (int32_t)little_endian(b + 22, 4),
        .bits = little_endian(b + 28, 2),
        .compression = little_endian(b + 30, 4),
        .colours = little_endian(b + 46, 4),
    };
    bmp->top_down = bmp->height < 0;
    if (bmp->top_down)
        bmp->height = -bmp->height;
    bool plain = bmp->compression == 0 && (bmp->bits == 8 || bmp->bits == 24 || bmp->bits == 32);
    /* Bit fields are accepted in the order of uncompressed pixels. */
    bool fields = bmp->compression == BMP_BITFIELDS && bmp->bits == 32 && size >= BMP_HEAD + 12 &&
                  little_endian(b + 54, 4) == 0xff0000 && little_endian(b + 58, 4) == 0xff00 &&
                  little_endian(b + 62, 4) == 0xff;
    if (bmp->header_bytes < 40 || !(plain || fields))
        return ls_image_refuse(image,
                               "a BMP of %d bits and compression %d: only uncompressed 8, 24 and 32 bits are read",
                               (int)bmp->bits, (int)bmp->compression);
    return LS_OK;
}

static void copy_row(const struct bmp *bmp, const uint8_t *row, const uint8_t *palette, uint8_t *out)
{
    int step = (int)bmp->bits / 8;
    for (int64_t x = 0; x < bmp->width; x++, row += step, out += 3) {
        const uint8_t *bgr = palette ? palette + 4 * row[0] : row;
        out[0] = bgr[2];
        out[1] = bgr[1];
        out[2] = bgr[0];
    }
}

enum ls_status ls_bmp_decode(const uint8_t *bytes, size_t size, struct ls_image *image)
{
    struct bmp bmp = {0};
    uint8_t palette[4 * 256] = {0};
    LS_TRY(read_header(bytes, size, &bmp, image));
    LS_TRY(ls_image_check_size(image, bmp.height, bmp.width));
    if (bmp.bits == 8) {
        int64_t colours = bmp.colours > 0 && bmp.colours < 256 ? bmp.colours : 256, at = 14 + bmp.header_bytes;
        if (at + 4 * colours > (int64_t)size)
            return ls_image_refuse(image, "truncated BMP: the palette of %d colours goes beyond the end", (int)colours);
        memcpy(palette, bytes + at, (size_t)colours * 4);
    }
    int64_t row = (bmp.width * bmp.bits / 8 + 3) / 4 * 4;
    if (bmp.pixels_at < BMP_HEAD || bmp.pixels_at + row * bmp.height > (int64_t)size)
        return ls_image_refuse(image, "truncated BMP: %zu bytes, expected %lld", size,
                               (long long)(bmp.pixels_at + row * bmp.height));
    LS_TRY(ls_image_reserve(image, 3, (int)bmp.height, (int)bmp.width));
    for (int64_t y = 0; y < bmp.height; y++) {
        const uint8_t *from = bytes + bmp.pixels_at + row * (bmp.top_down ? y : bmp.height - 1 - y);
        copy_row(&bmp, from, bmp.bits == 8 ? palette : NULL, image->pixels + (size_t)(y * bmp.width * 3));
    }
    return LS_OK;
}
