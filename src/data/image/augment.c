#include "data/dataset.h"
#include "data/image/planes.h"
#include "base/random.h"
#include "data/image/effects/effect.h"

#include <math.h>
#include <string.h>

/* Indexes of the random stream of a sample: 0 for flip and crop, 1 .. for the attempts of RandomResizedCrop. Effect k has the
 * stream k + 1. */
static void draw(const struct ls_view *v, uint64_t index, uint32_t out[4])
{
    ls_philox(v->seed, ls_random_stream(LS_RANDOM_AUGMENT, v->epoch, v->sample, 0), index, out);
}

static int below(uint32_t bits, int limit)
{
    return (int)(((uint64_t)bits * (uint64_t)limit) >> 32);
}

/* RandomResizedCrop like torchvision: 8 to 100 % of the area, aspect ratio 3:4 to 4:3. After ten attempts that do not fit,
 * the largest centred region of an allowed ratio. */
static struct ls_box random_box(const struct ls_view *v, int height, int width)
{
    const double narrowest = 3.0 / 4, widest = 4.0 / 3;
    double area = (double)height * width;
    for (uint64_t try = 1; try <= 10; try++) {
        uint32_t r[4];
        draw(v, try, r);
        double target = area * (0.08 + 0.92 * r[0] * 0x1p-32);
        double shape = exp(log(narrowest) + (log(widest) - log(narrowest)) * (r[1] * 0x1p-32));
        int w = (int)rint(sqrt(target * shape)), h = (int)rint(sqrt(target / shape));
        if (w > 0 && w <= width && h > 0 && h <= height)
            return (struct ls_box){below(r[2], height - h + 1), below(r[3], width - w + 1), h, w};
    }
    int w = width, h = height;
    if ((double)width / height < narrowest)
        h = (int)rint(w / narrowest);
    else if ((double)width / height > widest)
        w = (int)rint(h * widest);
    return (struct ls_box){(height - h) / 2, (width - w) / 2, h, w};
}

struct ls_view ls_augment_view(const struct ls_augment *a, uint64_t seed, uint64_t epoch, uint64_t sample)
{
    struct ls_view view = {.seed = seed, .epoch = epoch, .sample = sample};
    int larger = (int)(a->height > a->width ? a->height : a->width);
    if (a->random_resized)
        view.random_resized = a;
    if (a->resize > 0 && a->center && a->crop_height > 0) {
        int64_t by_height = a->resize * a->height / a->crop_height, by_width = a->resize * a->width / a->crop_width;
        view.min_side = 1 + (int)(by_height > by_width ? by_height : by_width);
    } else if (a->resize > 0)
        view.min_side = a->resize;
    else if (a->random_resized || (a->crop_pad < 0 && !a->center))
        view.min_side = larger;
    return view;
}

struct ls_box ls_view_box(const struct ls_view *view, int height, int width)
{
    if (!view || !view->random_resized)
        return (struct ls_box){0, 0, height, width};
    return random_box(view, height, width);
}

static bool reaches_out(const struct ls_augment *a, const struct ls_image *image, int top, int left)
{
    return top < 0 || left < 0 || top + a->height > image->height || left + a->width > image->width;
}

/* Crops where the image goes on mirrored beyond its border. */
static void reflect_to_planes(const struct ls_augment *a, const struct ls_image *image, int top, int left, bool flip,
                              float *planes)
{
    struct ls_pixels p = {.from_channels = image->channels,
                          .from_height = image->height,
                          .from_width = image->width,
                          .channels = (int32_t)a->channels,
                          .height = (int32_t)a->height,
                          .width = (int32_t)a->width,
                          .reflect = 1};
    memcpy(p.table, a->table, sizeof p.table);
    struct ls_crop crop = {.top = top, .left = left, .flip = flip};
    ls_crop_planes(&p, image->pixels, &crop, 1, planes);
}

/* Crops the output size at (top, left), which may lie outside, and converts bytes to normalised planes. */
static void to_planes(const struct ls_augment *a, const struct ls_image *image, int top, int left, bool flip,
                      float *planes)
{
    if (a->reflect && reaches_out(a, image, top, left))
        reflect_to_planes(a, image, top, left, flip, planes);
    else
        ls_planes_fill(a, image, top, left, flip, planes);
}

/* --- to pixels ---------------------------------------------------------------------------------------- */

static void copy_pixels(const uint8_t *from, int channels, int64_t count, const struct ls_augment *a, uint8_t *to)
{
    if (channels == a->channels)
        memcpy(to, from, (size_t)(count * channels));
    else if (channels == 3)
        for (int64_t i = 0; i < count; i++)
            to[i] = ls_luma(from + 3 * i);
    else
        for (int64_t i = 0; i < count; i++)
            memset(to + a->channels * i, from[i], (size_t)a->channels);
}

static void reflect_to_pixels(const struct ls_augment *a, const struct ls_image *image, int top, int left,
                              uint8_t *pixels)
{
    for (int y = 0; y < a->height; y++)
        for (int x = 0; x < a->width; x++, pixels += a->channels) {
            ptrdiff_t row = ls_reflect(top + y, image->height), column = ls_reflect(left + x, image->width);
            copy_pixels(image->pixels + (row * image->width + column) * image->channels, image->channels, 1, a, pixels);
        }
}

/* Copies the same crop as bytes. */
static void to_pixels(const struct ls_augment *a, const struct ls_image *image, int top, int left, uint8_t *pixels)
{
    int height = (int)a->height, width = (int)a->width, channels = (int)a->channels;
    int x0 = left < 0 ? -left : 0, x1 = image->width - left < width ? image->width - left : width;
    size_t row = (size_t)width * (size_t)channels;
    if (a->reflect && reaches_out(a, image, top, left)) {
        reflect_to_pixels(a, image, top, left, pixels);
        return;
    }
    x0 = x0 < width ? x0 : width;
    x1 = x1 > x0 ? x1 : x0;
    for (int y = 0; y < height; y++, pixels += row) {
        if (top + y < 0 || top + y >= image->height || x1 == x0) {
            memset(pixels, 0, row);
            continue;
        }
        const uint8_t *from = image->pixels + ((ptrdiff_t)(top + y) * image->width + left + x0) * image->channels;
        memset(pixels, 0, (size_t)x0 * (size_t)channels);
        copy_pixels(from, image->channels, x1 - x0, a, pixels + (size_t)x0 * (size_t)channels);
        memset(pixels + (size_t)x1 * (size_t)channels, 0, (size_t)(width - x1) * (size_t)channels);
    }
}

/* --- all steps ---------------------------------------------------------------------------------------- */

/* Half, rounded to even, as torchvision places a centre crop. */
static int half(int difference)
{
    int h = difference / 2;
    return difference % 2 ? h + (h & 1) : h;
}

/* Scales a side so that `crop` pixels become `output`, rounded. */
static int64_t scaled_by(int64_t side, int64_t output, int64_t crop)
{
    return (2 * side * output + crop) / (2 * crop);
}

/* Computes the size to which the image is scaled before the crop. */
static void scaled_size(const struct ls_augment *a, int *height, int *width)
{
    int64_t h = *height, w = *width, shorter = h < w ? h : w;
    if (a->resize > 0) {
        h = h * a->resize / shorter;
        w = w * a->resize / shorter;
    }
    if (a->center && a->crop_height > 0) {
        h = scaled_by(h, a->height, a->crop_height);
        w = scaled_by(w, a->width, a->crop_width);
    }
    bool differs = (h != a->height || w != a->width) && a->crop_pad < 0 && !a->center;
    if (differs || h < a->height || w < a->width) {
        /* Cover the output: the relatively shorter side fits exactly. */
        int64_t full_h = *height, full_w = *width;
        if (a->height * full_w >= a->width * full_h) {
            h = a->height;
            w = (full_w * a->height + full_h / 2) / full_h;
        } else {
            w = a->width;
            h = (full_h * a->width + full_w / 2) / full_w;
        }
    }
    *height = (int)(h < a->height ? a->height : h);
    *width = (int)(w < a->width ? a->width : w);
}

/* Whether a sample is mirrored in this epoch: as in the first one, or the other way round. */
static bool alternates(const struct ls_view *v)
{
    uint32_t r[4];
    struct ls_view first = *v;
    first.epoch = 0;
    draw(&first, 0, r);
    return (r[0] >> 31 ^ (v->epoch & 1)) != 0;
}

/* Chooses position and flip of the crop in a scaled image of that size. */
static struct ls_crop choose(const struct ls_augment *a, int height, int width, const struct ls_view *v)
{
    uint32_t r[4] = {0};
    int pad = a->crop_pad;
    if (a->flip || pad >= 0)
        draw(v, 0, r);
    struct ls_crop crop = {
        .top = half(height - (int)a->height), .left = half(width - (int)a->width), .flip = a->flip && r[0] >> 31};
    if (a->alternate)
        crop.flip = alternates(v);
    if (pad >= 0) {
        crop.top = below(r[1], height + 2 * pad - (int)a->height + 1) - pad;
        crop.left = below(r[2], width + 2 * pad - (int)a->width + 1) - pad;
    }
    return crop;
}

static enum ls_status scale_random(const struct ls_augment *a, const struct ls_image *image, const struct ls_view *view,
                                   struct ls_image *scratch)
{
    struct ls_box box = {0, 0, image->height, image->width}, all = {0, 0, (int)a->height, (int)a->width};
    if (!image->cropped)
        box = ls_view_box(view, image->height, image->width);
    return ls_image_resize(image, &box, all.height, all.width, &all, scratch);
}

/* Scales the image into scratch if needed. *shown is then the image that *crop refers to. */
static enum ls_status scale(const struct ls_augment *a, const struct ls_image *image, const struct ls_view *view,
                            struct ls_image *scratch, const struct ls_image **shown, struct ls_crop *crop)
{
    int height = image->height, width = image->width;
    *shown = scratch;
    if (a->random_resized) {
        *crop = choose(a, (int)a->height, (int)a->width, view);
        return scale_random(a, image, view, scratch);
    }
    scaled_size(a, &height, &width);
    *crop = choose(a, height, width, view);
    if (height == image->height && width == image->width) {
        *shown = image;
        return LS_OK;
    }
    /* Scale only the region of the crop. */
    int top = crop->top, left = crop->left, y0 = top > 0 ? top : 0, x0 = left > 0 ? left : 0;
    int y1 = top + (int)a->height < height ? top + (int)a->height : height;
    int x1 = left + (int)a->width < width ? left + (int)a->width : width;
    struct ls_box whole = {0, 0, image->height, image->width};
    struct ls_box window = {y0, x0, y1 - y0, x1 - x0}; /* not empty: the padding is smaller than the output */
    crop->top -= window.top;
    crop->left -= window.left;
    return ls_image_resize(image, &whole, height, width, &window, scratch);
}

/* --- effects ------------------------------------------------------------------------------------------ */

static void mirror(struct ls_canvas *c)
{
    int channels = c->channels;
    for (int y = 0; y < c->height; y++) {
        uint8_t *left = c->pixels + (ptrdiff_t)y * c->width * channels, *right = left + (c->width - 1) * channels;
        for (; left < right; left += channels, right -= channels)
            for (int k = 0; k < channels; k++) {
                uint8_t swapped = left[k];
                left[k] = right[k];
                right[k] = swapped;
            }
    }
}

/* Makes the bytes of the final image, mirrored and with all effects. `spare` is as large as `pixels`. */
static void apply_effects(const struct ls_augment *a, const struct ls_image *shown, const struct ls_crop *crop,
                          const struct ls_view *view, uint8_t *pixels, uint8_t *spare)
{
    struct ls_canvas canvas = {.channels = (int)a->channels,
                               .height = (int)a->height,
                               .width = (int)a->width,
                               .pixels = pixels,
                               .spare = spare};
    for (int c = 0; c < a->channels; c++)
        canvas.mean[c] = (uint8_t)rintf(a->mean[c] * 255);
    to_pixels(a, shown, crop->top, crop->left, pixels);
    if (crop->flip)
        mirror(&canvas);
    for (int i = 0; i < LS_EFFECTS; i++)
        if (a->effects[i].on) {
            uint64_t stream = ls_random_stream(LS_RANDOM_AUGMENT, view->epoch, view->sample, (uint64_t)i + 1);
            struct ls_dice dice = {.seed = view->seed, .stream = stream};
            ls_effects[i]->apply(a->effects[i].values, &dice, &canvas);
        }
}

static size_t final_bytes(const struct ls_augment *a)
{
    return (size_t)a->channels * (size_t)a->height * (size_t)a->width;
}

/* Through bytes, so that planes have the values of pixels. */
static enum ls_status effects_to_planes(const struct ls_augment *a, const struct ls_image *shown,
                                        const struct ls_crop *crop, const struct ls_view *view,
                                        struct ls_image *scratch, float *planes)
{
    size_t bytes = final_bytes(a);
    LS_TRY(ls_image_reserve_side(scratch, 2 * bytes));
    apply_effects(a, shown, crop, view, scratch->side, scratch->side + bytes);
    const struct ls_image made = {
        .channels = (int)a->channels, .height = (int)a->height, .width = (int)a->width, .pixels = scratch->side};
    to_planes(a, &made, 0, 0, false, planes);
    return LS_OK;
}

enum ls_status ls_augment_apply(const struct ls_augment *a, const struct ls_image *image, uint64_t seed, uint64_t epoch,
                                uint64_t sample, struct ls_image *scratch, float *planes)
{
    const struct ls_image *shown;
    struct ls_crop crop;
    struct ls_view view = ls_augment_view(a, seed, epoch, sample);
    LS_TRY(scale(a, image, &view, scratch, &shown, &crop));
    if (a->has_effects)
        return effects_to_planes(a, shown, &crop, &view, scratch, planes);
    to_planes(a, shown, crop.top, crop.left, crop.flip, planes);
    return LS_OK;
}

enum ls_status ls_augment_pixels(const struct ls_augment *a, const struct ls_image *image, uint64_t seed,
                                 uint64_t epoch, uint64_t sample, struct ls_image *scratch, uint8_t *pixels,
                                 struct ls_crop *crop)
{
    const struct ls_image *shown;
    struct ls_crop made;
    struct ls_view view = ls_augment_view(a, seed, epoch, sample);
    LS_TRY(scale(a, image, &view, scratch, &shown, &made));
    crop->top = crop->left = 0;
    crop->flip = made.flip;
    if (a->has_effects) {
        LS_TRY(ls_image_reserve_side(scratch, final_bytes(a)));
        apply_effects(a, shown, &made, &view, pixels, scratch->side);
        crop->flip = false; /* done */
    } else {
        to_pixels(a, shown, made.top, made.left, pixels);
    }
    return LS_OK;
}

bool ls_augment_only_crops(const struct ls_augment *a, const struct ls_dataset_info *info)
{
    int height = (int)info->height, width = (int)info->width;
    if (height == 0 || a->random_resized || a->has_effects)
        return false;
    scaled_size(a, &height, &width);
    return height == info->height && width == info->width;
}

void ls_augment_crop(const struct ls_augment *a, const struct ls_dataset_info *info, uint64_t seed, uint64_t epoch,
                     uint64_t sample, struct ls_crop *crop)
{
    struct ls_view view = ls_augment_view(a, seed, epoch, sample);
    *crop = choose(a, (int)info->height, (int)info->width, &view);
    crop->image = (int64_t)sample;
}

struct ls_pixels ls_augment_source(const struct ls_augment *a, const struct ls_dataset_info *info)
{
    struct ls_pixels p = {.from_channels = (int32_t)(info ? info->channels : a->channels),
                          .from_height = (int32_t)(info ? info->height : a->height),
                          .from_width = (int32_t)(info ? info->width : a->width),
                          .channels = (int32_t)a->channels,
                          .height = (int32_t)a->height,
                          .width = (int32_t)a->width,
                          .reflect = info && a->reflect};
    memcpy(p.table, a->table, sizeof p.table);
    return p;
}

/* --- back to bytes ------------------------------------------------------------------------------------ */

static uint8_t byte_of(float value, float mean, float deviation)
{
    float v = 255 * (value * deviation + mean);
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5f);
}

void ls_augment_invert(const struct ls_augment *a, const float *planes, int channels, uint8_t *pixels)
{
    int64_t area = a->height * a->width;
    for (int64_t i = 0; i < area; i++)
        for (int c = 0; c < channels; c++)
            pixels[i * channels + c] = byte_of(planes[c * area + i], a->mean[c], a->deviation[c]);
}
