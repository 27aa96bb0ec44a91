/* Data sets and batches.
 *
 * A data set is an ops table over an open source. Samples are numbered 0 .. count-1; any thread may read them in any order. A
 * loader follows one global order of samples, a function of seed and epoch only. It splits that order into batches, and its
 * threads fill a ring of batch slots ahead of the computation. */
#ifndef LS_DATA_DATA_H
#define LS_DATA_DATA_H

#include "base/crop.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_dataset_info {
    int64_t count;
    int64_t channels, height, width; /* of stored images; height = width = 0: various (image folders) */
    int64_t classes;
    const char *const *class_names; /* classes entries, or NULL; borrowed from the data set */
    const char *const *class_ids;   /* class names in the data files if class_names are translations of them, or NULL */
    const char *format;             /* "mnist" "idx" "cifar10" "cifar100" "folder" "tiny-imagenet" "synthetic" */
    float mean[4], deviation[4];    /* for normalisation of values in 0..1, per channel; equal for train and test */
    bool whole;                     /* there are no parts: train and test are the same samples */
    const char *folder;             /* the parent of the class folders; NULL: the format has none; borrowed */
    int64_t ignored;                /* number of files beside the images that are no images, such as Thumbs.db */
    const char *ignored_name;       /* the first of them; borrowed */
};

/* Sets what photographs have: three channels, and ImageNet's mean and deviation, which most recipes and pretrained weights
 * expect. */
void ls_dataset_photographs(struct ls_dataset_info *info);

/* A decoded image: 8-bit, interleaved rows (HWC), 1 or 3 channels. It is also the scratch memory of one thread: the buffers
 * grow to the largest image and are reused. Starts as {0}; free it with ls_image_release. */
struct ls_image {
    int channels, height, width;
    bool cropped;                 /* pixels is the region of the view, not the whole image */
    uint8_t *pixels;              /* in `buffer`, or borrowed from the data set and read-only (ls_image_borrow) */
    uint8_t *buffer, *side;       /* owned; side: the bytes of a file, or the intermediate image of a resize */
    size_t room, side_room;       /* of buffer and side */
    int orientation;              /* Exif's, 1 .. 8, of the file that was decoded last; its pixels are turned upright */
    struct ls_decoding *decoding; /* borrowed during ls_dataset_try: the alternative JPEG decoder; NULL: none */
    struct ls_decoder *decoder;   /* owned; opened on first use */
    struct ls_jpeg_tables *jpeg;  /* owned; made for the first JPEG */
    double read_seconds;          /* total time spent waiting for storage */
    char why[200];                /* cause of a failed ls_dataset_try or ls_image_decode */
};
/* Sets the size of the image and allocates its pixels, which are not cleared. */
enum ls_status ls_image_reserve(struct ls_image *image, int channels, int height, int width);
/* Lets the image show pixels that stay valid until the data set is closed. They are not written. */
void ls_image_borrow(struct ls_image *image, const uint8_t *pixels, int channels, int height, int width);
void ls_image_release(struct ls_image *image);

/* A rectangle in an image. */
struct ls_box {
    int top, left, height, width;
};

/* The part of an image that is used, so that a decoder can skip the rest. A JPEG is decoded at 1/2, 1/4 or 1/8 size while the
 * shorter side of the region stays >= min_side (0: full size); pixels outside of the region are not decoded. A reader may
 * ignore the view and return the whole image. A NULL view means the whole image at full size. */
struct ls_view {
    int min_side;
    const struct ls_augment *random_resized; /* borrowed; NULL: the whole image */
    uint64_t seed, epoch, sample;
};

/* Identifies a sample without decoding it. */
struct ls_identity {
    const char *folder, *name; /* of a file, relative to the folder of the classes; NULL: not a file */
    const void *bytes;         /* of a sample in memory; NULL: not in memory */
    size_t size;               /* of these bytes, or of the sample in a shard; 0: that of the file */
};

struct ls_dataset; /* opaque; holds its ops table */

struct ls_dataset_ops {
    const char *format;
    const char *word; /* the value, or prefix of the value, of --data; NULL: recognised by path */
    /* Tests whether spec or path looks like this format. Cheap; reports no error. */
    bool (*recognise)(const char *spec);
    /* part: "train" or "test". */
    enum ls_status (*open)(const char *spec, const char *part, struct ls_dataset **set);
    void (*close)(struct ls_dataset *set);
    /* Decodes sample i. Thread-safe: all scratch memory is in the image. Reports no error: see image->why. */
    enum ls_status (*read)(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                           int32_t *label);
    /* Returns the label without decoding. */
    int32_t (*label)(const struct ls_dataset *set, int64_t i);
    /* Writes the path or a description of sample i, for messages. */
    void (*where)(const struct ls_dataset *set, int64_t i, char *text, size_t room);
    /* Returns the stored file of sample i, such as a JPEG, in image->side or in memory of the data set. *bytes is NULL if
     * the sample is stored as pixels. Thread-safe and reports no error, like read. NULL: all samples are pixels. */
    enum ls_status (*encoded)(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                              size_t *size);
    /* NULL: format, count, size and classes identify the data. */
    void (*identify)(const struct ls_dataset *set, int64_t i, struct ls_identity *id);
};
extern const struct ls_dataset_ops *const ls_dataset_formats[]; /* ends with NULL */

/* spec: "mnist" (embedded), "synthetic:CxHxW:classes[:count]", a path whose format is recognised, or the name of a data set
 * that was fetched (config/downloads.h). */
enum ls_status ls_dataset_open(const char *spec, const char *part, struct ls_dataset **set);
/* Makes a data set of n image files, in this order. They need not exist: one that cannot be read is a bad sample. All are of
 * class 0. The paths are copied. */
enum ls_status ls_dataset_of_files(const char *const *paths, int64_t n, struct ls_dataset **set);
/* A path whose only entry is a folder means that folder. Warns if the data set was opened that way. */
void ls_dataset_warn_inner(const struct ls_dataset *set, const char *spec);
/* Notes in log.txt how many JPEGs the decoder of ls_dataset_decode_by left to the CPU. */
void ls_dataset_close(struct ls_dataset *set);
/* Sets the JPEG decoder: "cpu" (libjpeg-turbo, the default), "gpu" (nvJPEG) or "hardware" (the JPEG engines of a GPU). The
 * decoders round differently. Files that a decoder does not support are decoded by the CPU. */
enum ls_status ls_dataset_decode_by(struct ls_dataset *set, const char *name);
const struct ls_dataset_info *ls_dataset_info(const struct ls_dataset *set);
enum ls_status ls_dataset_read(struct ls_dataset *set, int64_t i, int min_side, struct ls_image *image, int32_t *label);
/* Like ls_dataset_read, with a view. Reports no error: the cause is in image->why. */
enum ls_status ls_dataset_try(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                              int32_t *label);
/* Returns the stored file of a sample; *bytes is NULL if it is stored as pixels. Reports no error: see image->why. */
enum ls_status ls_dataset_encoded(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                                  size_t *size);
int32_t ls_dataset_label(const struct ls_dataset *set, int64_t i);
void ls_dataset_where(const struct ls_dataset *set, int64_t i, char *text, size_t room);
/* Returns false if samples of this format have no identity. The path of a file comes from ls_dataset_where. */
bool ls_dataset_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id);
/* Returns the class in the data, before ls_classes_match mapped it to a class of the model. */
int32_t ls_dataset_own_class(const struct ls_dataset *set, int64_t i);

/* Remembers a sample that cannot be read; any thread may call it. */
void ls_dataset_note_bad(struct ls_dataset *set, int64_t sample);
/* Takes a remembered sample that was not taken before; false: there is none. */
bool ls_dataset_next_bad(struct ls_dataset *set, int64_t *sample);
/* Remembers this sample and takes it; false: it was taken before. */
bool ls_dataset_take_bad(struct ls_dataset *set, int64_t sample);
/* Returns the number of remembered samples. */
int64_t ls_dataset_bad_count(struct ls_dataset *set);

/* Decodes one image file (JPEG, PNG, WebP, GIF, PPM or BMP by content) to `channels` (1 or 3). */
enum ls_status ls_image_read_file(const char *path, int min_side, int channels, struct ls_image *image);
/* Decodes an image in memory. Turns it upright by its Exif orientation, drops alpha, converts 16 bits to 8 and CMYK to RGB.
 * The bytes may be in image->side; the call may overwrite that. Reports no error: see image->why. */
enum ls_status ls_image_decode(const uint8_t *bytes, size_t size, const struct ls_view *view, int channels,
                               struct ls_image *image);

/* --- augmentation: image -> normalised float planes, or bytes and crops ------------------------------- */

/* Effects (image/effects): changes of the image behind crop and flip. */
enum ls_effect_id {
#define X(name) LS_EFFECT_##name,
#include "data/image/effects/list.def"
    LS_EFFECTS
};
#define LS_EFFECT_VALUES 4

/* A parsed --augment list: "none", or words of ls_augment_words and effects. The order of operations is fixed: resize, then
 * one of rrc, crop and center, then flip, then effects, then conversion to normalised planes. An image that is smaller
 * than the output, or has another size while none of rrc, crop and center is given, is first scaled to cover the
 * output. */
struct ls_augment {
    bool flip, random_resized;
    bool alternate; /* with flip: mirror a sample in every second epoch, by chance in the odd or in the even ones */
    int crop_pad;   /* random crop after padding; -1: none */
    bool reflect;   /* the padding is the image, mirrored at its border; else black */
    int resize;     /* scale the shorter side to this; 0: no */
    bool center;
    int crop_height, crop_width;     /* with center: the crop of the scaled image; 0: of the output size */
    int64_t channels, height, width; /* output */
    bool has_effects;
    struct {
        bool on;
        float values[LS_EFFECT_VALUES];
    } effects[LS_EFFECTS];
    float mean[4], deviation[4];
    float table[4][256]; /* byte -> normalised value, per channel */
};
/* Parses a list. "auto" means, for training: crop:SIZE/8,flip on colour images of one size (CIFAR, Tiny ImageNet), rrc,flip on
 * folders, none on MNIST and synthetic; for evaluation (training = false): resize:SIZE*8/7,center on folders, else nothing.
 * From any other list, evaluation uses resize and center and skips random operations. The output size is channels x height x
 * width; height = width = 0: SIZE of the list, else the size of the data set, else 224. */
enum ls_status ls_augment_parse(const char *text, bool training, const struct ls_dataset_info *info, int64_t channels,
                                int64_t height, int64_t width, struct ls_augment *a);
/* The words of a list, for the parser and `lockstep help augment`. The array ends with a NULL name. */
struct ls_augment_word {
    const char *name, *argument, *help; /* argument: "" none, ":PAD" required, "[:SIZE]" optional */
    int least;                          /* smallest value of the argument */
    bool size;                          /* the argument is the output size */
    void (*set)(struct ls_augment *a, int value);
};
extern const struct ls_augment_word ls_augment_words[];
/* The same of effect number i, 0 .. LS_EFFECTS-1. */
void ls_effect_word(int i, const char **name, const char **argument, const char **help);
/* Formats the augmentation as a list: "resize:256,center", or "none". */
#define LS_AUGMENT_TEXT 160
const char *ls_augment_text(const struct ls_augment *a, char text[LS_AUGMENT_TEXT]);
/* Formats the effects alone: ",rotate:15,trivial", or "". */
const char *ls_effects_text(const struct ls_augment *a, char text[LS_AUGMENT_TEXT]);
/* Checks the syntax of a list, for commands that do not use it. */
enum ls_status ls_augment_check(const char *text);
/* Applies --eval-resize and --eval-crop: "auto" (no change), "none", a number of pixels, or HxW for the crop. A crop of
 * another size than the output is scaled to it. */
enum ls_status ls_augment_frame(struct ls_augment *a, const char *resize, const char *crop);
/* Formats the two values as ls_augment_frame reads them. */
void ls_augment_frame_text(const struct ls_augment *a, char resize[16], char crop[32]);
/* Describes an augmentation without random operations, for messages. */
void ls_augment_describe(const struct ls_augment *a, char text[256]);
/* Augments an image to planes. Random choices depend only on (seed, epoch, sample). scratch is reused between calls. */
enum ls_status ls_augment_apply(const struct ls_augment *a, const struct ls_image *image, uint64_t seed, uint64_t epoch,
                                uint64_t sample, struct ls_image *scratch, float *planes);
/* Maps normalised planes back to bytes, H x W x channels, for the eye. Of the planes the first `channels` are used. */
void ls_augment_invert(const struct ls_augment *a, const float *planes, int channels, uint8_t *pixels);
/* Augments an image to bytes of the final size, H x W x C, not normalised, and mirrored only where effects follow. *crop
 * gets the remaining flip; crop->image is not changed. */
enum ls_status ls_augment_pixels(const struct ls_augment *a, const struct ls_image *image, uint64_t seed,
                                 uint64_t epoch, uint64_t sample, struct ls_image *scratch, uint8_t *pixels,
                                 struct ls_crop *crop);
/* Tests whether the augmentation only crops and mirrors the images of that data set. */
bool ls_augment_only_crops(const struct ls_augment *a, const struct ls_dataset_info *info);
/* Returns the crop of a sample for such an augmentation; crop->image is the sample. */
void ls_augment_crop(const struct ls_augment *a, const struct ls_dataset_info *info, uint64_t seed, uint64_t epoch,
                     uint64_t sample, struct ls_crop *crop);
/* Returns the image format for a batch of pixels (info NULL) or for crops of the images of that data set. */
struct ls_pixels ls_augment_source(const struct ls_augment *a, const struct ls_dataset_info *info);
/* Returns the part of an image that ls_augment_apply uses. The view borrows the augmentation. */
struct ls_view ls_augment_view(const struct ls_augment *a, uint64_t seed, uint64_t epoch, uint64_t sample);
/* Returns the region of the view in a height x width image. */
struct ls_box ls_view_box(const struct ls_view *view, int height, int width);

/* --- the global order --------------------------------------------------------------------------------- */

/* Maps a position (0 .. count-1) of an epoch to a sample. The map is a keyed permutation, computed without a table. */
struct ls_sampler {
    int64_t count;
    uint64_t seed;
    bool shuffle;
    const int64_t *samples; /* borrowed; the sample at each position; NULL: all samples are in the order */
};
int64_t ls_sampler_at(const struct ls_sampler *s, uint64_t epoch, int64_t position);

/* --- loader ------------------------------------------------------------------------------------------- */

/* One batch: room for `batch` samples, of which the first `valid` are real. The others have label -1 and the value 0 (planes)
 * or a crop of no image (pixels, crops). */
struct ls_slot {
    enum ls_form form;
    float *images;         /* planes: batch x C x H x W; else NULL */
    uint8_t *pixels;       /* pixels: batch x H x W x C; else NULL */
    struct ls_crop *crops; /* batch; crop.image is the index in pixels, or the sample (crops); planes: NULL */
    int32_t *labels;       /* batch */
    int64_t valid;
    uint64_t epoch;
    int64_t position; /* of the first sample in the order of the epoch */
    int64_t broken;   /* number of its samples that could not be read and were replaced or left out */
};

/* What a loader does with a sample that cannot be read (LS_BAD_INPUT):
 *   fail      ls_loader_next returns the error.
 *   replace   The next sample of the data set that can be read takes its place: i+1, i+2 ..., after the last one 0. The
 *             random choices of the augmentation stay those of sample i. So the contents of a slot still depend on the data
 *             and the options only.
 *   leave out It gets label -1 like the samples behind `valid`, so that loss and accuracy do not count it. */
enum ls_on_bad { LS_BAD_FAILS, LS_BAD_REPLACED, LS_BAD_LEFT_OUT };

struct ls_loader_options {
    struct ls_dataset *set; /* borrowed */
    struct ls_augment augment;
    enum ls_form form; /* of the slots; crops require ls_augment_only_crops */
    uint64_t seed;
    bool shuffle;
    enum ls_on_bad on_bad;
    int threads, ring; /* ring: number of slots, >= 2 + held */
    int max_threads;   /* 0: always `threads`. Else the loader measures (tuner.h) and uses up to max_threads, or more
                      * if the threads often wait for storage */
    int held;          /* additional calls of next during which a slot stays valid */
    /* A step takes `step` samples (0: batch * parts, the maximum) of the epoch's order, fewer at its end, and splits them into
     * `parts` slices of at most `batch`, one per slot. This process loads the slices order[0..own-1]; NULL: all, 0, 1, 2 ...
     * Of n samples, slice k gets n/parts, and one more if k < n%parts. */
    int64_t batch, parts, step;
    const int *order;
    int64_t own;
    int64_t epoch_samples;  /* samples per epoch (<= count of the set); 0: all */
    const int64_t *samples; /* borrowed; these epoch_samples samples, in this order; NULL: any */
    bool goes_on;     /* an epoch of fewer begins where the one before it ended; false: each uses the first samples of
                             * an order of its own */
    uint64_t epoch;   /* first epoch (resume) */
    int64_t position; /* samples of that epoch already used */
    uint64_t epochs;  /* stop after this epoch number; 0: never */
    struct ls_trace *trace; /* borrowed; NULL: its threads are not recorded (base/trace.h) */
    int first_track;        /* id of the track of thread 0 */
};
struct ls_loader;
enum ls_status ls_loader_new(const struct ls_loader_options *options, struct ls_loader **loader);
/* May be called at any time, even while slots are being filled; takes NULL. */
void ls_loader_free(struct ls_loader *loader);
/* Returns the next slot; blocks until it is filled. The slot is valid until the following call of next, or `held` calls
 * longer. *slot is NULL after the last one. A decode error is reported here, in the order of the samples, with the file. It
 * ends the loader: further calls return the same status and report nothing. */
enum ls_status ls_loader_next(struct ls_loader *loader, const struct ls_slot **slot);
/* Waits until the next `slots` slots are filled, as far as the ring has room, without taking them. Returns false if one of
 * the next calls of next will fail. */
bool ls_loader_ready(struct ls_loader *loader, int64_t slots);
/* Returns the memory region of all slots. */
void *ls_loader_region(const struct ls_loader *loader, size_t *bytes);
/* Returns the total time that ls_loader_next has waited, in seconds. */
double ls_loader_waited(const struct ls_loader *loader);

/* The number of threads and measured speeds in samples/s; 0: unknown yet. Call it from the thread that calls next. */
struct ls_loader_pace {
    int threads;
    int max_threads; /* that may be tried */
    bool settled;    /* the number is chosen and no trial is under way */
    double prepares; /* samples/s that one thread reads, decodes and augments */
    double reading;  /* share of its time that a thread waits for storage */
    double uses;     /* samples/s that the caller takes when it does not wait */
};
struct ls_loader_pace ls_loader_pace(struct ls_loader *loader);

#endif
