/* The orientation of photographs: the tag of the Exif data in a JPEG, PNG or WebP file, and the turn that it asks for. */
#include "data/dataset.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define TYPE_LONG 4
#define ENTRY_BYTES 12

struct span {
    const uint8_t *at;
    size_t size;
};

static uint32_t number(const uint8_t *b, int bytes, bool little)
{
    uint32_t n = 0;
    for (int i = 0; i < bytes; i++)
        n = n << 8 | b[little ? bytes - 1 - i : i];
    return n;
}

/* Returns the orientation in a TIFF header with its first directory; 1 if there is none or the data is damaged. */
static int in_tiff(struct span s)
{
    if (s.size >= 6 && memcmp(s.at, "Exif\0\0", 6) == 0) {
        s.at += 6;
        s.size -= 6;
    }
    if (s.size < 8 || (memcmp(s.at, "II*\0", 4) != 0 && memcmp(s.at, "MM\0*", 4) != 0))
        return 1;
    bool little = s.at[0] == 'I';
    size_t at = number(s.at + 4, 4, little);
    if (at > s.size - 2)
        return 1;
    uint32_t entries = number(s.at + at, 2, little);
    for (at += 2; entries > 0 && at + ENTRY_BYTES <= s.size; entries--, at += ENTRY_BYTES) {
        const uint8_t *e = s.at + at;
        uint32_t type = number(e + 2, 2, little);
        if (number(e, 2, little) != TAG_ORIENTATION || number(e + 4, 4, little) != 1 ||
            (type != TYPE_SHORT && type != TYPE_LONG))
            continue;
        uint32_t value = number(e + 8, type == TYPE_SHORT ? 2 : 4, little);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* Finds the Exif data in the segments of a JPEG before its first scan. */
static struct span in_jpeg(const uint8_t *b, size_t size)
{
    size_t at = 2;
    while (at + 4 <= size && b[at] == 0xff) {
        uint8_t marker = b[at + 1];
        size_t length = number(b + at + 2, 2, false);
        if (marker == 0xff) { /* a fill byte */
            at++;
            continue;
        }
        if (marker == 0xda || marker == 0xd9 || length < 2 || length > size - at - 2)
            break;
        if (marker == 0xe1 && length >= 8 && memcmp(b + at + 4, "Exif\0\0", 6) == 0)
            return (struct span){b + at + 4, length - 2};
        at += 2 + length;
    }
    return (struct span){NULL, 0};
}

/* PNG: chunks of length, type, data and checksum, big-endian. */
static struct span in_png(const uint8_t *b, size_t size)
{
    for (size_t at = 8; at + 12 <= size;) {
        size_t length = number(b + at, 4, false);
        if (length > size - at - 12)
            break;
        if (memcmp(b + at + 4, "eXIf", 4) == 0)
            return (struct span){b + at + 8, length};
        at += 12 + length;
    }
    return (struct span){NULL, 0};
}

/* WebP: chunks of type, length and data, little-endian, of even size. */
static struct span in_webp(const uint8_t *b, size_t size)
{
    for (size_t at = 12; at + 8 <= size;) {
        size_t length = number(b + at + 4, 4, true);
        if (length > size - at - 8)
            break;
        if (memcmp(b + at, "EXIF", 4) == 0)
            return (struct span){b + at + 8, length};
        at += 8 + length + (length & 1);
    }
    return (struct span){NULL, 0};
}

int ls_exif_orientation(const uint8_t *b, size_t size)
{
    if (size >= 4 && b[0] == 0xff && b[1] == 0xd8)
        return in_tiff(in_jpeg(b, size));
    if (size >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0)
        return in_tiff(in_png(b, size));
    if (size >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0)
        return in_tiff(in_webp(b, size));
    return 1;
}

/* --- turning ------------------------------------------------------------------------------------------ */

/* What an orientation does: the upright image is the stored one, transposed if `swaps`; then its rows are taken from the
 * bottom if `up`, and its columns from the right if `left`. */
static bool swaps(int orientation)
{
    return orientation >= 5;
}

static bool up(int orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
}

static bool left(int orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
}

void ls_orient_size(int orientation, int *height, int *width)
{
    int h = *height;
    if (swaps(orientation)) {
        *height = *width;
        *width = h;
    }
}

struct ls_box ls_orient_box(int orientation, const struct ls_box *box, int height, int width)
{
    ls_orient_size(orientation, &height, &width);
    struct ls_box b = *box, stored;
    if (up(orientation))
        b.top = height - b.top - b.height;
    if (left(orientation))
        b.left = width - b.left - b.width;
    if (!swaps(orientation))
        return b;
    stored = (struct ls_box){.top = b.left, .left = b.top, .height = b.width, .width = b.height};
    return stored;
}

static inline __attribute__((always_inline)) void copy_row(const uint8_t *from, ptrdiff_t step, int count, int channels,
                                                           uint8_t *to)
{
    for (int x = 0; x < count; x++, from += step, to += channels)
        for (int c = 0; c < channels; c++)
            to[c] = from[c];
}

enum ls_status ls_image_orient(int orientation, struct ls_image *image)
{
    int height = image->height, width = image->width, channels = image->channels;
    if (orientation <= 1)
        return LS_OK;
    ptrdiff_t across = channels, down = (ptrdiff_t)channels * width; /* steps to the next pixel and row of the result */
    size_t row = (size_t)channels * (size_t)(swaps(orientation) ? height : width);
    LS_TRY(ls_image_reserve_side(image, (size_t)channels * (size_t)height * (size_t)width));
    ls_orient_size(orientation, &height, &width);
    if (swaps(orientation)) {
        across = down;
        down = channels;
    }
    const uint8_t *first = image->pixels;
    if (up(orientation)) {
        first += down * (height - 1);
        down = -down;
    }
    if (left(orientation)) {
        first += across * (width - 1);
        across = -across;
    }
    for (int y = 0; y < height; y++)
        if (channels == 3)
            copy_row(first + down * y, across, width, 3, image->side + row * (size_t)y);
        else
            copy_row(first + down * y, across, width, 1, image->side + row * (size_t)y);
    uint8_t *turned = image->side;
    size_t room = image->side_room;
    image->side = image->buffer;
    image->side_room = image->room;
    image->pixels = image->buffer = turned;
    image->room = room;
    image->height = height;
    image->width = width;
    return LS_OK;
}
