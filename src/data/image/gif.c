/* The first frame of a GIF with giflib, on a canvas of the whole size. */
#include "data/dataset.h"

#ifdef LS_GIF

#include <gif_lib.h>
#include <string.h>

#define NO_COLOUR (-1)

struct source {
    const uint8_t *bytes; /* borrowed */
    size_t size, at;
};

static int take(GifFileType *gif, GifByteType *out, int n)
{
    struct source *s = gif->UserData;
    size_t left = s->size - s->at, count = (size_t)n < left ? (size_t)n : left;
    memcpy(out, s->bytes + s->at, count);
    s->at += count;
    return (int)count;
}

/* Skips to the first frame. *transparent gets the number of its transparent colour. */
static bool find_frame(GifFileType *gif, int *transparent)
{
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    while (DGifGetRecordType(gif, &type) == GIF_OK && type == EXTENSION_RECORD_TYPE) {
        int code;
        GifByteType *block;
        GraphicsControlBlock control;
        if (DGifGetExtension(gif, &code, &block) != GIF_OK)
            return false;
        if (block && code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            *transparent = control.TransparentColor;
        while (block)
            if (DGifGetExtensionNext(gif, &block) != GIF_OK)
                return false;
    }
    return type == IMAGE_DESC_RECORD_TYPE && DGifGetImageDesc(gif) == GIF_OK;
}

/* A GIF without colours is grey. */
static void set_pixels(const ColorMapObject *map, const uint8_t *colour, int count, uint8_t *rgb)
{
    for (int x = 0; x < count; x++, rgb += 3) {
        int c = colour[x];
        if (!map)
            memset(rgb, c, 3);
        else if (c < map->ColorCount)
            memcpy(rgb, (uint8_t[]){map->Colors[c].Red, map->Colors[c].Green, map->Colors[c].Blue}, 3);
        else
            memset(rgb, 0, 3);
    }
}

/* The bytes of the file may be in image->side, so a row of up to 65535 pixels is on the stack. */
static bool read_rows(GifFileType *gif, const ColorMapObject *map, struct ls_image *image)
{
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    const GifImageDesc *frame = &gif->Image;
    uint8_t row[UINT16_MAX];
    for (int pass = 0; pass < (frame->Interlace ? 4 : 1); pass++)
        for (int y = frame->Interlace ? first[pass] : 0; y < frame->Height; y += frame->Interlace ? step[pass] : 1) {
            if (DGifGetLine(gif, row, frame->Width) != GIF_OK)
                return false;
            size_t at = (size_t)(frame->Top + y) * (size_t)image->width + (size_t)frame->Left;
            set_pixels(map, row, frame->Width, image->pixels + 3 * at);
        }
    return true;
}

static enum ls_status refuse(struct ls_image *image, int code)
{
    const char *why = GifErrorString(code);
    return ls_image_refuse(image, "corrupt or truncated GIF: %s", why ? why : "it cannot be read");
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static enum ls_status decode(GifFileType *gif, struct ls_image *image)
{
    int transparent = NO_COLOUR;
    if (!find_frame(gif, &transparent))
        return ls_image_refuse(image, "corrupt or truncated GIF: there is no frame in it");
    const GifImageDesc *frame = &gif->Image;
    const ColorMapObject *map = frame->ColorMap ? frame->ColorMap : gif->SColorMap;
    int height = larger(gif->SHeight, frame->Top + frame->Height);
    int width = larger(gif->SWidth, frame->Left + frame->Width);
    LS_TRY(ls_image_check_size(image, height, width));
    LS_TRY(ls_image_reserve(image, 3, height, width));
    /* Around a frame that is smaller than the canvas lies the transparent colour, or colour 0, as in Pillow. */
    uint8_t around = (uint8_t)(transparent == NO_COLOUR ? 0 : transparent), rgb[3];
    set_pixels(map, &around, 1, rgb);
    for (size_t p = 0; p < (size_t)height * (size_t)width; p++)
        memcpy(image->pixels + 3 * p, rgb, 3);
    if (!read_rows(gif, map, image))
        return refuse(image, gif->Error);
    return LS_OK;
}

enum ls_status ls_gif_decode(const uint8_t *bytes, size_t size, struct ls_image *image)
{
    struct source s = {bytes, size, 0};
    int error = 0;
    GifFileType *gif = DGifOpen(&s, take, &error);
    if (!gif)
        return refuse(image, error);
    enum ls_status st = decode(gif, image);
    DGifCloseFile(gif, &error);
    return st;
}

#else

enum ls_status ls_gif_decode(const uint8_t *bytes, size_t size, struct ls_image *image)
{
    (void)bytes, (void)size;
    return ls_image_refuse(image, "%s", ls_image_needs("gif"));
}

#endif
