/* JPEG with libjpeg-turbo: decodes at a reduced size and only the region in use. */
#include "data/dataset.h"
#include "base/decoder.h"
#include "base/memory.h"
#include "data/image/jpeg/jpeg_huffman.h"

#include <string.h>
#include <jerror.h>

/* Limits the scans of a progressive file, which could repeat endlessly. */
#define MAX_SCANS 500

/* Keeps rows off the boundary at which libjpeg-turbo stores them past the cache. */
#define OFF_BOUNDARY 8

struct reader {
    struct ls_jpeg_huffman huffman; /* the first member: see jpeg_huffman.h */
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr error;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    struct ls_image *image; /* borrowed */
};

static void on_error(j_common_ptr common)
{
    struct reader *r = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    ls_image_refuse(r->image, "corrupt or truncated JPEG: %s", text);
    longjmp(r->jump, 1);
}

/* libjpeg warns and continues when it has to make up pixels. Such a file counts as damaged. */
static void on_warning(j_common_ptr common, int level)
{
    int code = common->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                      code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC || code == JWRN_NOT_SEQUENTIAL))
        on_error(common);
}

static void on_progress(j_common_ptr common)
{
    struct reader *r = common->client_data;
    if (r->jpeg.input_scan_number <= MAX_SCANS)
        return;
    ls_image_refuse(r->image, "a JPEG of more than %d scans", MAX_SCANS);
    longjmp(r->jump, 1);
}

/* Chooses the smallest of 1/8, 1/4, 1/2 and 1 that leaves the shorter side of the region at least min_side pixels. The
 * factors between have no SIMD code in libjpeg-turbo and are slower than the next larger one. */
static unsigned eighths(int shorter, int min_side)
{
    unsigned n = 1;
    if (min_side <= 0)
        return 8;
    while (n < 8 && (int64_t)shorter * n / 8 < min_side)
        n *= 2;
    return n;
}

/* Adobe writes inverted CMYK; other programs do not. */
static void cmyk_to_rgb(const uint8_t *cmyk, int width, bool inverted, uint8_t *rgb)
{
    for (int x = 0; x < width; x++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++) {
            int ink = inverted ? cmyk[c] : 255 - cmyk[c], black = inverted ? cmyk[3] : 255 - cmyk[3];
            rgb[c] = (uint8_t)((ink * black + 127) / 255);
        }
}

/* Returns the region of the scaled image that covers `box` of the full one. */
static struct ls_box scaled_box(const struct ls_box *box, const struct jpeg_decompress_struct *jpeg)
{
    int64_t full_h = jpeg->image_height, full_w = jpeg->image_width;
    int64_t h = jpeg->output_height, w = jpeg->output_width;
    int top = (int)(box->top * h / full_h), left = (int)(box->left * w / full_w);
    int bottom = (int)(((box->top + box->height) * h + full_h - 1) / full_h);
    int right = (int)(((box->left + box->width) * w + full_w - 1) / full_w);
    return (struct ls_box){.top = top, .left = left, .height = bottom - top, .width = right - left};
}

/* Rows go through a row buffer, which stays in the cache. */
static void read_rows(struct reader *r, const struct ls_box *part)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    struct ls_image *image = r->image;
    JDIMENSION first = 0, width = jpeg->output_width;
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    size_t row_bytes = (size_t)image->channels * (size_t)image->width;
    if ((JDIMENSION)part->width < width) {
        first = (JDIMENSION)part->left;
        width = (JDIMENSION)part->width;
        jpeg_crop_scanline(jpeg, &first, &width);
    }
    JSAMPROW buffer =
        OFF_BOUNDARY + jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE,
                                               width * (JDIMENSION)jpeg->output_components + OFF_BOUNDARY, 1)[0];
    ls_jpeg_huffman_begin(&r->huffman, jpeg, first, width);
    if (part->top > 0)
        jpeg_skip_scanlines(jpeg, (JDIMENSION)part->top);
    size_t skip = ((size_t)part->left - first) * (size_t)jpeg->output_components;
    for (int y = 0; y < part->height; y++) {
        uint8_t *row = image->pixels + (size_t)y * row_bytes;
        jpeg_read_scanlines(jpeg, &buffer, 1);
        if (cmyk)
            cmyk_to_rgb(buffer + skip, part->width, jpeg->saw_Adobe_marker, row);
        else
            memcpy(row, buffer + skip, row_bytes);
    }
}

static void set_colours(struct jpeg_decompress_struct *jpeg)
{
    if (jpeg->jpeg_color_space == JCS_GRAYSCALE)
        jpeg->out_color_space = JCS_GRAYSCALE;
    else if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK)
        jpeg->out_color_space = JCS_CMYK;
    else
        jpeg->out_color_space = JCS_RGB;
}

/* Tests whether an alternative decoder may decode the file: baseline, usual colours, upright, complete. Huffman
 * decoding dominates progressive files and runs on the host anyway. Truncated files are left to libjpeg, which reports
 * them. */
static bool suits_others(const struct reader *r, const uint8_t *bytes, size_t size)
{
    const struct jpeg_decompress_struct *jpeg = &r->jpeg;
    bool upright = r->image->orientation <= 1;
    bool usual = jpeg->jpeg_color_space == JCS_GRAYSCALE || jpeg->jpeg_color_space == JCS_YCbCr;
    return usual && upright && !jpeg->progressive_mode && !jpeg->arith_code && bytes[size - 2] == 0xff &&
           bytes[size - 1] == 0xd9;
}

static enum ls_status decode_elsewhere(struct reader *r, const uint8_t *bytes, size_t size, const struct ls_box *part,
                                       bool *done)
{
    const struct jpeg_decompress_struct *jpeg = &r->jpeg;
    struct ls_decoder_job job = {.bytes = bytes,
                                 .size = size,
                                 .channels = r->image->channels,
                                 .height = (int)jpeg->image_height,
                                 .width = (int)jpeg->image_width,
                                 .shrink = (int)(8 / jpeg->scale_num),
                                 .top = part->top,
                                 .left = part->left,
                                 .rows = part->height,
                                 .columns = part->width};
    return ls_decoding_try(r->image, suits_others(r, bytes, size), &job, done);
}

/* Returns the region of the stored image that the view uses. The view chooses it in the upright image. */
static struct ls_box used_box(const struct reader *r, const struct ls_view *view)
{
    int height = (int)r->jpeg.image_height, width = (int)r->jpeg.image_width, orientation = r->image->orientation;
    int upright_height = height, upright_width = width;
    ls_orient_size(orientation, &upright_height, &upright_width);
    struct ls_box box = ls_view_box(view, upright_height, upright_width);
    return ls_orient_box(orientation, &box, height, width);
}

static enum ls_status decode(struct reader *r, const uint8_t *bytes, size_t size, const struct ls_view *view)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    if (setjmp(r->jump))
        return LS_BAD_INPUT;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &r->progress;
    jpeg_mem_src(jpeg, bytes, (unsigned long)size);
    jpeg_read_header(jpeg, TRUE);
    LS_TRY(ls_image_check_size(r->image, jpeg->image_height, jpeg->image_width));
    struct ls_box box = used_box(r, view);
    set_colours(jpeg);
    jpeg->scale_num = eighths(box.height < box.width ? box.height : box.width, view ? view->min_side : 0);
    jpeg->scale_denom = 8;
    jpeg_calc_output_dimensions(jpeg);
    struct ls_box part = scaled_box(&box, jpeg);
    LS_TRY(ls_image_reserve(r->image, jpeg->out_color_space == JCS_GRAYSCALE ? 1 : 3, part.height, part.width));
    r->image->cropped = view && view->random_resized;
    bool done = false;
    if (!r->huffman.failed) /* else this is the second time */
        LS_TRY(decode_elsewhere(r, bytes, size, &part, &done));
    if (done)
        return LS_OK;
    jpeg_start_decompress(jpeg);
    read_rows(r, &part);
    if (jpeg->output_scanline == jpeg->output_height) {
        ls_jpeg_huffman_end(&r->huffman, jpeg);
        jpeg_finish_decompress(jpeg);
    }
    return LS_OK;
}

static enum ls_status decode_once(struct reader *r, const uint8_t *bytes, size_t size, const struct ls_view *view)
{
    r->jpeg.err = jpeg_std_error(&r->error);
    r->jpeg.client_data = r;
    r->error.error_exit = on_error;
    r->error.emit_message = on_warning;
    r->progress.progress_monitor = on_progress;
    enum ls_status st = decode(r, bytes, size, view);
    jpeg_destroy_decompress(&r->jpeg);
    return st;
}

enum ls_status ls_jpeg_decode(const uint8_t *bytes, size_t size, const struct ls_view *view, struct ls_image *image)
{
    struct reader r;
    if (!image->jpeg && !(image->jpeg = ls_alloc(1, sizeof *image->jpeg)))
        return LS_FAILED;
    memset(&r, 0, sizeof r);
    r.image = image;
    r.huffman.out = &r.jump;
    r.huffman.tables = image->jpeg;
    r.huffman.failed = image->jpeg->off;
    enum ls_status st = decode_once(&r, bytes, size, view);
    return r.huffman.failed && !image->jpeg->off ? decode_once(&r, bytes, size, view) : st;
}
