/* Data sets, and batches out of them.
 *
 * A data set is an ops table over an opened source; samples are numbered 0 .. count-1 and can be read in any
 * order from any thread. A loader walks one global order of samples (a function of seed and epoch alone),
 * cuts it into batches, and fills a ring of batch slots ahead of the compute with its own threads. */
#ifndef LS_DATA_DATA_H
#define LS_DATA_DATA_H

#include "base/crop.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_dataset_info {
    int64_t count;
    int64_t channels, height, width; /* of stored images; height = width = 0: they differ (image folders) */
    int64_t classes;
    const char *const *class_names; /* classes entries, or NULL; borrowed from the data set */
    const char *const *class_ids;   /* how the files call the classes where class_names are words for people, or NULL */
    const char *format;             /* "mnist" "idx" "cifar10" "cifar100" "folder" "tiny-imagenet" "synthetic" */
    float mean[4], deviation[4];    /* for normalising, of values in 0..1, per channel; both parts alike */
    const char *folder;             /* that holds the folders of the classes; NULL: the format has none; borrowed */
};

/* A decoded image: 8-bit, interleaved rows (HWC), channels 1 or 3. It is also a thread's scratch for reading:
 * the buffers grow to the largest image met and are reused. Starts as {0}. */
struct ls_image {
    int channels, height, width;
    bool cropped;           /* the pixels are the part that the view asked for, not the whole image */
    uint8_t *pixels, *side; /* owned; side: a file's bytes, or the middle of a resize */
    size_t room, side_room;
    struct ls_decoding *decoding; /* borrowed, while ls_dataset_try runs: who may decode JPEGs instead; NULL: nobody */
    struct ls_decoder *decoder;   /* owned; opened when it is first needed */
    double read_seconds;          /* spent in reading files that storage had to be waited for, so far */
    char why[200];                /* after a failed ls_dataset_try or ls_image_decode: what was wrong */
};
/* Room for an image of that size, which the image then has; the pixels are not cleared. */
enum ls_status ls_image_reserve(struct ls_image *image, int channels, int height, int width);
void ls_image_release(struct ls_image *image);

/* A part of an image. */
struct ls_box {
    int top, left, height, width;
};

/* What will be seen of an image, so that a decoder can leave out the rest: a JPEG is decoded at 1/2, 1/4 or
 * 1/8 while the shorter side of the part stays >= min_side (0: full size), and outside of the part not at
 * all. A reader may ignore it and give the whole image. NULL stands for everything at full size. */
struct ls_view {
    int min_side;
    const struct ls_augment *random_resized; /* borrowed; NULL: the whole image is seen */
    uint64_t seed, epoch, sample;
};

/* What tells a sample from all others without decoding it. */
struct ls_identity {
    const char *folder, *name; /* of a file, beneath the folder of all classes; NULL: it is none */
    const void *bytes;         /* of a sample that is in memory; NULL: it is not */
    size_t size;
};

struct ls_dataset; /* opaque; holds its ops table */

struct ls_dataset_ops {
    const char *format;
    const char *word; /* what --data calls it, or begins with; NULL: by its path */
    /* Does spec/path look like this format? Cheap; no errors said. */
    bool (*recognise)(const char *spec);
    /* part: "train" or "test". */
    enum ls_status (*open)(const char *spec, const char *part, struct ls_dataset **set);
    void (*close)(struct ls_dataset *set);
    /* Decode sample i. Thread-safe: all scratch is in the image. Says no error: image->why has it. */
    enum ls_status (*read)(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                           int32_t *label);
    /* The label alone, without decoding. */
    int32_t (*label)(const struct ls_dataset *set, int64_t i);
    /* Path or description of sample i for messages. */
    void (*where)(const struct ls_dataset *set, int64_t i, char *text, size_t room);
    /* NULL: format, count, size and classes say all. */
    void (*identify)(const struct ls_dataset *set, int64_t i, struct ls_identity *id);
};
extern const struct ls_dataset_ops *const ls_dataset_formats[]; /* ends with NULL */

/* spec: "mnist" (embedded), "synthetic:CxHxW:classes[:count]", or a path whose format is recognised. */
enum ls_status ls_dataset_open(const char *spec, const char *part, struct ls_dataset **set);
/* A path that holds nothing but one folder stands for that folder. Warn of it, where that was so. */
void ls_dataset_warn_inner(const struct ls_dataset *set, const char *spec);
/* The number of JPEGs that ls_dataset_decode_by could not have decoded is noted. */
void ls_dataset_close(struct ls_dataset *set);
/* Have JPEGs decoded by "cpu" (libjpeg-turbo, as they are without this), "gpu" (nvJPEG) or "hardware" (the JPEG engines of
 * a GPU). Each decoder rounds in its own way. Files that another than cpu does not take are decoded by cpu. */
enum ls_status ls_dataset_decode_by(struct ls_dataset *set, const char *name);
const struct ls_dataset_info *ls_dataset_info(const struct ls_dataset *set);
enum ls_status ls_dataset_read(struct ls_dataset *set, int64_t i, int min_side, struct ls_image *image, int32_t *label);
/* The same with a view, and without saying the error: the cause is in image->why. */
enum ls_status ls_dataset_try(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                              int32_t *label);
int32_t ls_dataset_label(const struct ls_dataset *set, int64_t i);
void ls_dataset_where(const struct ls_dataset *set, int64_t i, char *text, size_t room);
/* False: the samples of this format have no identity of their own. Files: ls_dataset_where is the path. */
bool ls_dataset_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id);
/* The data's own class, whatever ls_classes_match made of it. */
int32_t ls_dataset_own_class(const struct ls_dataset *set, int64_t i);

/* Decode one image file (JPEG, PNG, PPM, BMP by content) to `channels` (1 or 3) for predict. */
enum ls_status ls_image_read_file(const char *path, int min_side, int channels, struct ls_image *image);
/* From memory; says no error, image->why has it. Alpha is dropped, 16 bits become 8, CMYK becomes RGB. */
enum ls_status ls_image_decode(const uint8_t *bytes, size_t size, const struct ls_view *view, int channels,
                               struct ls_image *image);

/* --- augmentation: image -> normalised float planes, or the bytes and choices that make them ----------- */

/* "none", or a comma list of ls_augment_words — then always converted to planes and normalised. The order is fixed: resize, then one of
 * rrc, crop and center, then flip. An image that is smaller than what comes out, or of another size with
 * neither rrc, crop nor center given, is first scaled until it just covers it. */
struct ls_augment {
    bool flip, random_resized;
    int crop_pad; /* random crop after padding with black, -1: none */
    int resize;   /* shorter side to this, 0: no */
    bool center;
    int crop_height,
        crop_width; /* with center: the part of the scaled image that comes out; 0: of the size it has then */
    int64_t channels, height, width; /* what comes out */
    float mean[4], deviation[4];
    float table[4][256]; /* byte -> normalised value, per channel */
};
/* text "auto": for training crop:SIZE/8,flip on colour sets of one size (CIFAR, Tiny ImageNet), rrc,flip on
 * folders, none on MNIST and synthetic; for evaluation (training = false) resize:SIZE*8/7,center on folders,
 * else nothing. Any other text is for training: evaluation keeps its resize and center and leaves out what is
 * random. Out size: c, h, w given; h = w = 0: the list's SIZE, else the data set's, else 224. */
enum ls_status ls_augment_parse(const char *text, bool training, const struct ls_dataset_info *info, int64_t channels,
                                int64_t height, int64_t width, struct ls_augment *a);
/* The words of a list, for the parser and for `lockstep help augment`; ends with a NULL name. */
struct ls_augment_word {
    const char *name, *argument, *help; /* argument: "" none, ":PAD" required, "[:SIZE]" may be left out */
    int least;                          /* that the argument may be */
    bool size;                          /* the argument is the size of what comes out */
    void (*set)(struct ls_augment *a, int value);
};
extern const struct ls_augment_word ls_augment_words[];
/* As such a list: "resize:256,center", or "none". */
const char *ls_augment_text(const struct ls_augment *a, char text[64]);
/* Is the list well formed? For commands that do not need one. */
enum ls_status ls_augment_check(const char *text);
/* What evaluation sees, as --eval-resize and --eval-crop give it: "auto" (as it is), "none", a number of pixels, and for the
 * crop HxW. A crop of another size than the output is scaled to it. */
enum ls_status ls_augment_frame(struct ls_augment *a, const char *resize, const char *crop);
/* The two as text that ls_augment_frame takes back. */
void ls_augment_frame_text(const struct ls_augment *a, char resize[16], char crop[32]);
/* An augmentation without random choices, for people. */
void ls_augment_describe(const struct ls_augment *a, char text[256]);
/* Random choices are a function of (seed, epoch, sample) alone. scratch is reused from call to call. */
enum ls_status ls_augment_apply(const struct ls_augment *a, const struct ls_image *image, uint64_t seed, uint64_t epoch,
                                uint64_t sample, struct ls_image *scratch, float *planes);
/* The same up to the bytes: an image of the final size, rows of H x W x C, not mirrored and not normalised; what is left to do
 * is in *crop, whose image stays as it is. */
enum ls_status ls_augment_pixels(const struct ls_augment *a, const struct ls_image *image, uint64_t seed,
                                 uint64_t epoch, uint64_t sample, struct ls_image *scratch, uint8_t *pixels,
                                 struct ls_crop *crop);
/* Is all that the augmentation does to the images of that data set cutting and mirroring? */
bool ls_augment_only_crops(const struct ls_augment *a, const struct ls_dataset_info *info);
/* What it then does to a sample, whose number becomes the image's. */
void ls_augment_crop(const struct ls_augment *a, const struct ls_dataset_info *info, uint64_t seed, uint64_t epoch,
                     uint64_t sample, struct ls_crop *crop);
/* What a batch of pixels (info NULL), or crops of that data set's images, is to be read with. */
struct ls_pixels ls_augment_source(const struct ls_augment *a, const struct ls_dataset_info *info);
/* What ls_augment_apply will look at. The augmentation stays borrowed by the view. */
struct ls_view ls_augment_view(const struct ls_augment *a, uint64_t seed, uint64_t epoch, uint64_t sample);
/* The part of a height x width image that is seen. */
struct ls_box ls_view_box(const struct ls_view *view, int height, int width);

/* --- the global order --------------------------------------------------------------------------------- */

/* Position p (0 .. count-1) of epoch e -> sample number; a keyed permutation, computed without a table. */
struct ls_sampler {
    int64_t count;
    uint64_t seed;
    bool shuffle;
};
int64_t ls_sampler_at(const struct ls_sampler *s, uint64_t epoch, int64_t position);

/* --- loader ------------------------------------------------------------------------------------------- */

/* One filled batch: `batch` samples of room, the first `valid` of them real; labels of the rest are -1 and
 * their values 0 (planes), their crops of no image (pixels, crops). */
struct ls_slot {
    enum ls_form form;
    float *images;         /* planes: batch x C x H x W; else NULL */
    uint8_t *pixels;       /* pixels: batch x H x W x C; else NULL */
    struct ls_crop *crops; /* pixels, where image i is number i, and crops, where it is the sample: batch; else NULL */
    int32_t *labels;       /* batch */
    int64_t valid;
    uint64_t epoch;
    int64_t position; /* of the first sample in the epoch's order */
};

struct ls_loader_options {
    struct ls_dataset *set; /* borrowed */
    struct ls_augment augment;
    enum ls_form form; /* of the slots; crops: ls_augment_only_crops */
    uint64_t seed;
    bool shuffle;
    int threads, ring; /* ring: slots in all, >= 2 + held */
    int most; /* 0: as many threads fill slots all the time; else the loader measures (tuner.h) and comes to up to
                        * `most`, or more where they wait for storage for much of their time */
    int held; /* calls of next that a slot stays valid beyond the following one */
    /* Step t takes `step` samples (0: batch * parts, the most) from the epoch's order, fewer at its end; they are cut into
     * `parts` slices of at most `batch` each, one a slot. Slices
     * come in the order `order[0..own-1]`, the slices of this process; NULL: all, 0, 1, 2 ... Samples are dealt
     * as evenly as can be: of n, slice k gets n/parts (+1 for the first n%parts slices). */
    int64_t batch, parts, step;
    const int *order;
    int64_t own;
    int64_t epoch_samples; /* samples an epoch (<= set count), 0: all */
    uint64_t epoch;        /* start here (resume) */
    int64_t position;      /* samples of that epoch already used */
    uint64_t epochs;       /* stop after this many (absolute number), 0: never */
};
struct ls_loader;
enum ls_status ls_loader_new(const struct ls_loader_options *options, struct ls_loader **loader);
/* At any time, also with slots half filled; takes NULL. */
void ls_loader_free(struct ls_loader *loader);
/* The next slot, valid until the following call to next, or `held` calls longer (its place in the ring is then given back);
 * *slot = NULL after the last. Blocks until it is filled; a decode error comes out here, in the order of the
 * samples, naming the file, and ends the loader: further calls return the same status and say nothing. */
enum ls_status ls_loader_next(struct ls_loader *loader, const struct ls_slot **slot);
/* Waits until the next `slots` slots are filled, as far as the ring has room for them besides those that are in use, and
 * looks whether all of them can be had: false means that one of the next calls of next fails. Takes none. */
bool ls_loader_ready(struct ls_loader *loader, int64_t slots);
/* The memory that all slots' images, crops and labels lie in. */
void *ls_loader_region(const struct ls_loader *loader, size_t *bytes);
/* Seconds ls_loader_next has waited so far. */
double ls_loader_waited(const struct ls_loader *loader);

/* How many threads fill slots, and what was measured so far; speeds in samples/s, 0: not known yet. For the thread that
 * calls next. */
struct ls_loader_pace {
    int threads;
    int most;        /* threads that may be tried */
    bool settled;    /* the number is chosen, and no other is tried at the moment */
    double prepares; /* what one thread reads, decodes and augments */
    double reading;  /* the share of its time in which it waits for storage */
    double uses;     /* what the caller takes when it does not wait */
};
struct ls_loader_pace ls_loader_pace(struct ls_loader *loader);

#endif
