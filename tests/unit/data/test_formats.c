/* Each format: what a good set holds, and the message for every way to be broken. */
#include "data_files.h"
#include "data/formats/cifar.h"

#include <unistd.h>

/* --- IDX ---------------------------------------------------------------------------------------------- */

/* Images of `count` samples, 2 x 3 pixels, sample i filled with i; labels i % classes. */
static size_t idx_images(uint8_t *b, int count)
{
    memcpy(b, (uint8_t[]){0, 0, 8, 3, 0, 0, 0, (uint8_t)count, 0, 0, 0, 2, 0, 0, 0, 3}, 16);
    for (int i = 0; i < 6 * count; i++)
        b[16 + i] = (uint8_t)(i / 6);
    return 16 + 6 * (size_t)count;
}

static size_t idx_labels(uint8_t *b, int count, int classes)
{
    memcpy(b, (uint8_t[]){0, 0, 8, 1, 0, 0, 0, (uint8_t)count}, 8);
    for (int i = 0; i < count; i++)
        b[8 + i] = (uint8_t)(i % classes);
    return 8 + (size_t)count;
}

static void make_idx(const char *dir)
{
    uint8_t b[256];
    size_t size = idx_images(b, 20);
    put(at("%s/train-images-idx3-ubyte", dir), b, size);
    size = idx_labels(b, 20, 4);
    put(at("%s/train-labels-idx1-ubyte", dir), b, size);
    size = idx_images(b, 6);
    put_gz(at("%s/t10k-images-idx3-ubyte.gz", dir), b, size);
    size = idx_labels(b, 6, 3);
    put_gz(at("%s/t10k-labels-idx1-ubyte.gz", dir), b, size);
}

static void idx_reads_plain_and_gz(void **state)
{
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    make_idx("idx");
    struct ls_dataset *set = opened(at("idx"), "train");
    const struct ls_dataset_info *info = ls_dataset_info(set);
    assert_true(info->count == 20 && info->channels == 1 && info->height == 2 && info->width == 3);
    assert_int_equal(info->classes, 4);
    assert_string_equal(info->format, "idx");
    for (int i = 0; i < 20; i++) {
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        assert_int_equal(label, i % 4);
        assert_int_equal(ls_dataset_label(set, i), label);
        assert_true(image.channels == 1 && image.height == 2 && image.width == 3 && image.pixels[5] == i);
    }
    BAD(ls_dataset_read(set, 20, 0, &image, &label));
    SAID("only 20 samples");
    BAD(ls_dataset_read(set, -1, 0, &image, &label));
    ls_dataset_close(set);
    set = opened(at("idx"), "test");
    assert_int_equal(ls_dataset_info(set)->count, 6);
    assert_int_equal(ls_dataset_info(set)->classes, 4); /* as in training, although it has only three of them */
    ls_dataset_close(set);
    ls_image_release(&image);
}

static void broken_idx_is_named(void **state)
{
    uint8_t b[256];
    char dir[128], images[256], labels[256];
    (void)state;
    snprintf(dir, sizeof dir, "%s/bad", folder);
    snprintf(images, sizeof images, "%s/train-images-idx3-ubyte", dir);
    snprintf(labels, sizeof labels, "%s/train-labels-idx1-ubyte", dir);
    make_idx("bad");
    size_t size = idx_images(b, 20);
    put(images, b, size - 1);
    refused(dir, "train", "truncated: the header asks for 136 bytes, the file has 135");
    put(images, b, size + 1);
    refused(dir, "train", "too long: the header asks for 136 bytes, the file has 137");
    put(images, b, 10);
    refused(dir, "train", "10 bytes are too few for the 16 of an IDX header");
    put(images, b, 0);
    refused(dir, "train", "0 bytes are too few");
    b[2] = 9;
    put(images, b, size);
    refused(dir, "train", "magic number 0x00000903 at byte 0, expected 0x00000803");
    memcpy(b, "\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16);
    put(images, b, size);
    refused(dir, "train", "dimension 2 (at byte 8)");
    memcpy(b, "\0\0\x08\x03\xff\xff\xff\xff\0\0\xff\x00\0\0\xff\x00", 16);
    put(images, b, size);
    refused(dir, "train", "more than any file holds");
    memcpy(b, "\0\0\x08\x03\0\0\0\0\0\0\0\x02\0\0\0\x03", 16);
    put(images, b, 16);
    refused(dir, "train", "dimension 1 (at byte 4) is 0");
    size = idx_images(b, 20);
    put(images, b, size);
    size = idx_labels(b, 19, 4);
    put(labels, b, size);
    refused(dir, "train", "20 images, but");
    SAID("has 19 labels");
    size = idx_labels(b, 20, 4);
    b[8 + 7] = 200;
    put(labels, b, size);
    refused(dir, "train", "label 200 at byte 15 but no sample has label 4");
    size = idx_labels(b, 20, 4);
    put(labels, b, size);
    size = idx_labels(b, 6, 6);
    put(at("bad/t10k-labels-idx1-ubyte.gz"), b, size); /* .gz in name only: read by content */
    refused(dir, "test", "label 4 at byte 12, but the training part has only 0 to 3");
    unlink(labels);
    refused(dir, "train", "train-labels-idx1-ubyte: missing, and so is");
    GOOD(ls_dir_make(labels));
    refused(dir, "train", "not a regular file");
}

static void broken_gz_is_named(void **state)
{
    uint8_t b[256];
    char *gz;
    size_t size, raw = idx_images(b, 6);
    char dir[128], path[256];
    (void)state;
    snprintf(dir, sizeof dir, "%s/gz", folder);
    snprintf(path, sizeof path, "%s/t10k-images-idx3-ubyte.gz", dir);
    make_idx("gz");
    GOOD(ls_file_read(path, 4096, &gz, &size));
    put(path, gz, size - 3);
    refused(dir, "test", "gzip");
    put(path, gz, 12);
    refused(dir, "test", "not a whole gzip file: 12 bytes");
    gz[size / 2] = (char)~gz[size / 2];
    put(path, gz, size);
    refused(dir, "test", "corrupt or truncated gzip data");
    gz[size / 2] = (char)~gz[size / 2];
    gz[size - 6] = (char)~gz[size - 6]; /* the CRC */
    put(path, gz, size);
    refused(dir, "test", "incorrect data check");
    gz[size - 6] = (char)~gz[size - 6];
    memcpy(gz + size - 4, "\xff\xff\xff\xff", 4); /* a length beyond what so few bytes can hold */
    put(path, gz, size);
    refused(dir, "test", "cannot hold");
    memcpy(gz + size - 4, &(uint32_t){(uint32_t)raw}, 4);
    char longer[512];
    memcpy(longer, gz, size);
    memset(longer + size, 0, 8);
    memcpy(longer + size + 4, &(uint32_t){(uint32_t)raw}, 4);
    put(path, longer, size + 8);
    refused(dir, "test", "8 bytes follow the end of the gzip data");
    ls_free(gz);
}

static void mnist_is_embedded(void **state)
{
    struct ls_image image = {0};
    int32_t label;
    int64_t sum = 0;
    (void)state;
    struct ls_dataset *set = opened("mnist", "train");
    const struct ls_dataset_info *info = ls_dataset_info(set);
    assert_true(info->count == 60000 && info->height == 28 && info->width == 28 && info->classes == 10);
    GOOD(ls_dataset_read(set, 0, 0, &image, &label));
    assert_int_equal(label, 5);
    for (int64_t i = 0; i < info->count; i++) {
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        for (int p = 0; p < 784; p++)
            sum += image.pixels[p];
    }
    double mean = (double)sum / (60000.0 * 784 * 255);
    assert_true(mean > 0.13065 && mean < 0.13067);
    ls_dataset_close(set);
    set = opened("mnist", "test");
    assert_int_equal(ls_dataset_info(set)->count, 10000);
    ls_dataset_close(set); /* also while it is still being unpacked */
    ls_image_release(&image);
}

/* --- CIFAR -------------------------------------------------------------------------------------------- */

static void make_cifar(const char *path, int records, int label_bytes, int classes)
{
    size_t record = (size_t)label_bytes + 3072;
    uint8_t *b = malloc(record * (size_t)records);
    for (int r = 0; r < records; r++) {
        uint8_t *p = b + record * (size_t)r;
        p[0] = (uint8_t)(r % 5);
        p[label_bytes - 1] = (uint8_t)(r % classes);
        memset(p + label_bytes, 10 + r, 1024);
        memset(p + label_bytes + 1024, 60 + r, 1024);
        memset(p + label_bytes + 2048, 110 + r, 1024);
        p[label_bytes + 1] = 1; /* red of the second pixel */
    }
    put(path, b, record * (size_t)records);
    free(b);
}

static void cifar10_reads_all_batches(void **state)
{
    struct ls_image image = {0};
    int32_t label;
    char text[256];
    (void)state;
    for (int b = 1; b <= 5; b++)
        make_cifar(at("c10/data_batch_%d.bin", b), 3, 1, 10);
    make_cifar(at("c10/test_batch.bin"), 4, 1, 10);
    struct ls_dataset *set = opened(at("c10"), "train");
    SAID("3 records where the official file has 10000");
    assert_string_equal(ls_dataset_info(set)->format, "cifar10");
    assert_int_equal(ls_dataset_info(set)->count, 15);
    assert_null(ls_dataset_info(set)->class_names);
    for (int i = 0; i < 15; i++) {
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        assert_int_equal(label, i % 3);
        assert_memory_equal(image.pixels + 3, ((uint8_t[]){1, (uint8_t)(60 + i % 3), (uint8_t)(110 + i % 3)}), 3);
    }
    ls_dataset_where(set, 7, text, sizeof text);
    assert_non_null(strstr(text, "data_batch_3.bin: record 1"));
    ls_dataset_close(set);
    put_text(at("c10/batches.meta.txt"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    set = opened(at("c10"), "test");
    assert_int_equal(ls_dataset_info(set)->count, 4);
    assert_string_equal(ls_dataset_info(set)->class_names[9], "j");
    ls_dataset_close(set);
    put_text(at("c10/batches.meta.txt"), "a\nb\n");
    refused(at("c10"), "test", "2 class names, expected 10");
    ls_image_release(&image);
}

static void cifar100_takes_the_fine_label(void **state)
{
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    make_cifar(at("c100/train.bin"), 120, 2, 100);
    struct ls_dataset *set = opened(at("c100"), "train");
    assert_string_equal(ls_dataset_info(set)->format, "cifar100");
    assert_int_equal(ls_dataset_info(set)->classes, 100);
    GOOD(ls_dataset_read(set, 99, 0, &image, &label));
    assert_int_equal(label, 99);
    ls_dataset_close(set);
    refused(at("c100"), "test", "test.bin: cannot be opened");
    ls_image_release(&image);
}

static void broken_cifar_is_named(void **state)
{
    uint8_t b[3073] = {0};
    int64_t records;
    (void)state;
    make_cifar(at("cbad/test_batch.bin"), 2, 1, 10);
    refused(at("cbad"), "train", "data_batch_1.bin: cannot be opened");
    BAD(ls_cifar_parse(b, 3072, "x", &ls_cifar10, &records));
    SAID("x: truncated or too long: 3072 bytes are 0 records of 3073 bytes and 3072 bytes more");
    BAD(ls_cifar_parse(b, 0, "x", &ls_cifar10, &records));
    SAID("empty");
    b[0] = 10;
    BAD(ls_cifar_parse(b, 3073, "x", &ls_cifar10, &records));
    SAID("label 10 at byte 0 (record 0), expected 0 to 9");
    b[0] = 9;
    GOOD(ls_cifar_parse(b, 3073, "x", &ls_cifar10, &records));
}

/* --- folders ------------------------------------------------------------------------------------------ */

static void folders_give_sorted_classes(void **state)
{
    (void)state;
    picture(at("f/train/zebra/b.JPG"), 20);
    picture(at("f/train/zebra/a.png"), 10);
    picture(at("f/train/ant/deep/er/x.jpeg"), 40);
    picture(at("f/train/ant/y.PNG"), 30);
    put_text(at("f/train/ant/notes.txt"), "no image");
    put_text(at("f/train/.hidden/x.jpg"), "not seen");
    picture(at("f/val/zebra/v.jpg"), 50);
    struct ls_dataset *set = opened(at("f"), "train");
    const struct ls_dataset_info *info = ls_dataset_info(set);
    assert_true(info->classes == 2 && info->height == 0 && info->channels == 3);
    assert_string_equal(info->class_names[0], "ant");
    assert_string_equal(info->class_names[1], "zebra");
    expect_samples(set, 4, (int[]){30, 40, 10, 20}, (int[]){0, 0, 1, 1});
    ls_dataset_close(set);
    set = opened(at("f"), "test"); /* the classes of train hold, although val lacks one */
    assert_int_equal(ls_dataset_info(set)->classes, 2);
    expect_samples(set, 1, (int[]){50}, (int[]){1});
    ls_dataset_close(set);
    set = opened(at("f/train"), "test"); /* a plain folder is both parts */
    assert_true(ls_dataset_info(set)->whole);
    assert_int_equal(ls_dataset_info(set)->count, 4);
    ls_dataset_close(set);
}

static void broken_folders_are_named(void **state)
{
    struct ls_dataset *set;
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    picture(at("g/train/a/1.jpg"), 1);
    refused(at("g"), "test", "no val or test folder");
    GOOD(ls_dir_make(at("g/train/b")));
    put_text(at("g/train/b/1.tif"), "x");
    picture(at("g/train/b/2.jpg"), 1);
    set = opened(at("g"), "train");
    SAID("1 image files are left out");
    ls_dataset_close(set);
    picture(at("g/val/c/1.jpg"), 1);
    refused(at("g"), "test", "g/val/c: a class that");
    GOOD(ls_dir_make(at("h/train")));
    refused(at("h"), "train", "no folders in it");
    refused(at("nowhere"), "train", "no such folder");
    put_text(at("file"), "x");
    refused(at("file"), "train", "no known data set");
    put_text(at("g/train/a/0.jpg"), "\xff\xd8\xff nonsense");
    set = opened(at("g"), "train");
    BAD(ls_dataset_read(set, 0, 0, &image, &label));
    SAID("g/train/a/0.jpg: corrupt or truncated JPEG");
    unlink(at("g/train/a/1.jpg"));
    BAD(ls_dataset_read(set, 1, 0, &image, &label));
    SAID("g/train/a/1.jpg: cannot be opened");
    ls_dataset_close(set);
    ls_image_release(&image);
}

/* Names of parts that people use, in any case; classes that are only called so. */
static void parts_have_many_names(void **state)
{
    static const char *const names[][3] = {
        {"Training", "Testing", "Testing"},       {"train", "valid", "valid"}, {"TRAIN", "VAL", "VAL"},
        {"training", "validation", "validation"}, {"Train", "test", "test"},   {"train", "Eval", "Eval"}};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        picture(at("n%zu/%s/a/1.jpg", i, names[i][0]), 10);
        picture(at("n%zu/%s/b/1.jpg", i, names[i][0]), 20);
        picture(at("n%zu/%s/b/1.jpg", i, names[i][1]), 30);
        struct ls_dataset *set = opened(at("n%zu", i), "train");
        expect_samples(set, 2, (int[]){10, 20}, (int[]){0, 1});
        assert_string_equal(ls_dataset_info(set)->folder, at("n%zu/%s", i, names[i][0]));
        ls_dataset_close(set);
        set = opened(at("n%zu", i), "test");
        expect_samples(set, 1, (int[]){30}, (int[]){1});
        assert_string_equal(ls_dataset_info(set)->folder, at("n%zu/%s", i, names[i][2]));
        ls_dataset_close(set);
    }
    picture(at("n1/test/a/1.jpg"), 40); /* beside valid */
    struct ls_dataset *set = opened(at("n1"), "test");
    expect_samples(set, 1, (int[]){30}, (int[]){1});
    ls_dataset_close(set);
    picture(at("v/bus/1.jpg"), 10);
    picture(at("v/train/1.jpg"), 20);
    picture(at("v/test/1.jpg"), 30);
    set = opened(at("v"), "train");
    expect_samples(set, 3, (int[]){10, 30, 20}, (int[]){0, 1, 2});
    ls_dataset_close(set);
    picture(at("w/train/1.jpg"), 20); /* all in one folder */
    picture(at("w/test/1.jpg"), 30);
    refused(at("w"), "train", "w/train: no folders in it");
    picture(at("w/train/a/1.jpg"), 20);
    refused(at("w"), "test", "w/test: no folders in it");
    picture(at("x/val/a/1.jpg"), 20);
    refused(at("x"), "train", "no folder to train on");
    set = opened(at("x"), "test");
    expect_samples(set, 1, (int[]){20}, (int[]){0});
    ls_dataset_close(set);
}

static void a_level_too_high_is_noticed(void **state)
{
    (void)state;
    picture(at("high/photos/flowers/a/1.jpg"), 10);
    picture(at("high/photos/flowers/b/1.jpg"), 20);
    put_text(at("high/README"), "no image");
    picture(at("high/__MACOSX/photos/._x.jpg"), 1);
    struct ls_dataset *set = opened(at("high//"), "train");
    expect_samples(set, 2, (int[]){10, 20}, (int[]){0, 1});
    assert_string_equal(ls_dataset_info(set)->folder, at("high/photos/flowers"));
    ls_dataset_warn_inner(set, at("high"));
    SAID("high/photos/flowers is taken instead");
    ls_dataset_close(set);
    picture(at("high/more/1.jpg"), 30); /* now there are two ways */
    picture(at("high/photos/flowers/train/1.jpg"), 1);
    set = opened(at("high"), "train");
    assert_int_equal(ls_dataset_info(set)->classes, 2);
    ls_dataset_close(set);
    picture(at("single/a/1.jpg"), 10);
    set = opened(at("single"), "train");
    SAID("images of one class only, a,");
    ls_dataset_close(set);
    picture(at("sets/one/train/a/1.jpg"), 10);
    picture(at("sets/two/1.jpg"), 10);
    set = opened(at("sets"), "train");
    SAID("give --data");
    SAID("sets/one");
    ls_dataset_close(set);
    picture(at("deep/one/a/1.jpg"), 10);
    picture(at("deep/one/b/1.jpg"), 10);
    picture(at("deep/two/a/1.jpg"), 10);
    picture(at("deep/two/b/1.jpg"), 10);
    set = opened(at("deep"), "train");
    SAID("give one level deeper");
    ls_dataset_close(set);
    picture(at("low/1.jpg"), 10);
    refused(at("low"), "train", "give the folder above it");
}

/* A class without images keeps its number. */
static void empty_classes_stay_classes(void **state)
{
    (void)state;
    GOOD(ls_dir_make(at("e/train/b")));
    GOOD(ls_dir_make(at("e/train/.ipynb_checkpoints")));
    GOOD(ls_dir_make(at("e/train/a")));
    refused(at("e"), "train", "e/train: every class is empty");
    picture(at("e/train/a/1.jpg"), 10);
    picture(at("e/train/c/1.jpg"), 30);
    picture(at("e/val/b/1.jpg"), 20);
    struct ls_dataset *set = opened(at("e"), "train");
    SAID("1 of the classes has no images: b");
    assert_int_equal(ls_dataset_info(set)->classes, 3);
    expect_samples(set, 2, (int[]){10, 30}, (int[]){0, 2});
    ls_dataset_close(set);
    set = opened(at("e"), "test");
    expect_samples(set, 1, (int[]){20}, (int[]){1});
    ls_dataset_close(set);
    picture(at("e/val/loose.jpg"), 20);
    set = opened(at("e"), "test");
    SAID("1 image lies beside the folders of the classes, left out (the first: loose.jpg)");
    ls_dataset_close(set);
}

static void tiny_imagenet_as_distributed(void **state)
{
    (void)state;
    put_text(at("t/wnids.txt"), "n02\nn01\n");
    put_text(at("t/words.txt"), "n00\tentity\nn01\tgoldfish, Carassius auratus\n");
    picture(at("t/train/n01/images/n01_0.JPEG"), 10);
    picture(at("t/train/n02/images/n02_0.JPEG"), 20);
    put_text(at("t/train/n02/n02_boxes.txt"), "n02_0.JPEG\t0\t0\t1\t1\n");
    picture(at("t/val/images/val_0.JPEG"), 30);
    picture(at("t/val/images/val_1.JPEG"), 40);
    put_text(at("t/val/val_annotations.txt"), "val_0.JPEG\tn02\t0\t0\t1\t1\r\nval_1.JPEG\tn01\t0\t0\t1\t1\r\n");
    struct ls_dataset *set = opened(at("t"), "train");
    const struct ls_dataset_info *info = ls_dataset_info(set);
    assert_string_equal(info->format, "tiny-imagenet");
    assert_string_equal(info->class_names[0], "goldfish, Carassius auratus");
    assert_string_equal(info->class_names[1], "n02");
    expect_samples(set, 2, (int[]){10, 20}, (int[]){0, 1});
    ls_dataset_close(set);
    set = opened(at("t"), "test");
    expect_samples(set, 2, (int[]){30, 40}, (int[]){1, 0});
    ls_dataset_close(set);
    put_text(at("t/val/val_annotations.txt"), "val_0.JPEG\tn02\nval_1.JPEG\tn09\n");
    refused(at("t"), "test", "line 2: expected a file name, a tab and a class of wnids.txt, found 'val_1.JPEG' 'n09'");
    put_text(at("t/val/val_annotations.txt"), "../../x\tn02\n");
    refused(at("t"), "test", "line 1");
    put_text(at("t/val/val_annotations.txt"), "val_0.JPEG\n");
    refused(at("t"), "test", "line 1");
    put(at("t/val/val_annotations.txt"), "a\0b", 3);
    refused(at("t"), "test", "not a text file: a zero byte at 1");
    put_text(at("t/wnids.txt"), "n02\nn01\nn02\n");
    refused(at("t"), "train", "class n02 is listed twice");
    put_text(at("t/wnids.txt"), "n02\nn01\nn03\n");
    refused(at("t"), "train", "train/n03: the folder cannot be read");
}

/* --- synthetic ---------------------------------------------------------------------------------------- */

static void synthetic_is_the_same_every_time(void **state)
{
    struct ls_image image = {0}, again = {0};
    int32_t label, other;
    (void)state;
    struct ls_dataset *set = opened("synthetic:3x32x32:10", "train"), *twin = opened("synthetic:3x32x32:10", "train");
    struct ls_dataset *test = opened("synthetic:3x32x32:10", "test");
    assert_int_equal(ls_dataset_info(set)->count, 10000);
    assert_int_equal(ls_dataset_info(test)->count, 2000);
    for (int i = 0; i < 30; i++) {
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        GOOD(ls_dataset_read(twin, i, 0, &again, &other));
        assert_int_equal(label, other);
        assert_memory_equal(image.pixels, again.pixels, 3072);
        GOOD(ls_dataset_read(test, i, 0, &again, &other));
        assert_memory_not_equal(image.pixels, again.pixels, 3072);
    }
    ls_dataset_close(set);
    ls_dataset_close(twin);
    ls_dataset_close(test);
    set = opened("synthetic:1x5x9:3:7", "train");
    assert_int_equal(ls_dataset_info(set)->count, 7);
    GOOD(ls_dataset_read(set, 6, 0, &image, &label));
    assert_true(image.channels == 1 && image.height == 5 && image.width == 9 && label == 0);
    ls_dataset_close(set);
    ls_image_release(&image);
    ls_image_release(&again);
}

/* Test images are classified by the nearest mean of training images: what is shown can be learnt. */
static void synthetic_classes_can_be_learnt(void **state)
{
    enum { CLASSES = 10, PIXELS = 3 * 16 * 16 };
    static double mean[CLASSES][PIXELS];
    struct ls_image image = {0};
    int32_t label;
    int right = 0;
    (void)state;
    struct ls_dataset *set = opened("synthetic:3x16x16:10:1000", "train");
    for (int i = 0; i < 500; i++) {
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        for (int p = 0; p < PIXELS; p++)
            mean[label][p] += image.pixels[p] / 50.0;
    }
    ls_dataset_close(set);
    set = opened("synthetic:3x16x16:10:1000", "test");
    for (int i = 0; i < 200; i++) {
        int best = 0;
        double least = 1e30;
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        for (int c = 0; c < CLASSES; c++) {
            double distance = 0;
            for (int p = 0; p < PIXELS; p++)
                distance += (image.pixels[p] - mean[c][p]) * (image.pixels[p] - mean[c][p]);
            best = distance < least ? c : best;
            least = distance < least ? distance : least;
        }
        right += best == label;
    }
    assert_true(right >= 196);
    ls_dataset_close(set);
    ls_image_release(&image);
}

static void mistakes_in_synthetic_are_named(void **state)
{
    static const char *const bad[] = {"synthetic:",
                                      "synthetic:3x32x32",
                                      "synthetic:3x32:10",
                                      "synthetic:2x32x32:10",
                                      "synthetic:3x0x32:10",
                                      "synthetic:3x32x32:0",
                                      "synthetic:3x32x32:10:",
                                      "synthetic:3x32x32:10:0",
                                      "synthetic:3x32x32:10x",
                                      "synthetic:3x-2x32:10",
                                      "synthetic:3x99999999999999999999x3:10"};
    struct ls_dataset *set;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ls_dataset_open(bad[i], "train", &set), LS_USAGE);
        SAID("expected synthetic:CxHxW:CLASSES[:COUNT]");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_reads_plain_and_gz),
        cmocka_unit_test(broken_idx_is_named),
        cmocka_unit_test(broken_gz_is_named),
        cmocka_unit_test(mnist_is_embedded),
        cmocka_unit_test(cifar10_reads_all_batches),
        cmocka_unit_test(cifar100_takes_the_fine_label),
        cmocka_unit_test(broken_cifar_is_named),
        cmocka_unit_test(folders_give_sorted_classes),
        cmocka_unit_test(broken_folders_are_named),
        cmocka_unit_test(parts_have_many_names),
        cmocka_unit_test(a_level_too_high_is_noticed),
        cmocka_unit_test(empty_classes_stay_classes),
        cmocka_unit_test(tiny_imagenet_as_distributed),
        cmocka_unit_test(synthetic_is_the_same_every_time),
        cmocka_unit_test(synthetic_classes_can_be_learnt),
        cmocka_unit_test(mistakes_in_synthetic_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
