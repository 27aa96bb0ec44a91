/* Parts of image folders without class folders: a label file has the classes of their images. */
#include "data_files.h"

/* ImageNet's val folder: images together, labels in a file. The images of val are 1.jpg (30), 2.jpg (31), 3 x.jpg (32). */
static void flat_part(const char *name, const char *file, const char *text)
{
    picture(at("%s/train/n01 a/1.jpg", name), 10);
    picture(at("%s/train/n02/1.jpg", name), 11);
    picture(at("%s/train/n03/1.jpg", name), 12);
    picture(at("%s/val/1.jpg", name), 30);
    picture(at("%s/val/2.jpg", name), 31);
    picture(at("%s/val/3 x.jpg", name), 32);
    picture(at("%s/test/1.jpg", name), 33); /* without labels, as ImageNet's */
    put_text(at("%s/%s", name, file), text);
}

static void flat_parts_have_label_files(void **state)
{
    static const struct {
        const char *file, *text;
        int labels[3];
    } good[] = {
        {"val.txt", "val/3 x.jpg n01 a\n2.jpg n03\r\n\n1.jpg n02\n", {1, 2, 0}},
        {"val/val_annotations.txt", "2.jpg\tn03\t0\t1\n1.jpg\tn01 a\t0\t1\n3 x.jpg\tn02\n", {0, 2, 1}},
        {"LOC_val_solution.csv", "ImageId,PredictionString\n2,n03 85 1 499 2 n03 1\n1,n02 1\n3 x,n02", {1, 2, 1}},
        {"val_labels.csv", "1.jpg,n02\n2.jpg,n02\n3 x.jpg,n03\n", {1, 1, 2}},
        {"val_labels.txt", "n02\nn01 a\nn03\n", {1, 0, 2}},
        {"imagenet_2012_validation_synset_labels.txt", "n03\nn03\nn02\n", {2, 2, 1}},
        {"val.txt", "1.jpg 0\n2.jpg 2\n3 x.jpg 1\n", {0, 2, 1}},
        {"val.txt", "1.jpg 3\n2.jpg 2\n3 x.jpg 1\n", {2, 1, 0}},
        {"val/ground_truth.txt", "3\n2\n3\n", {2, 1, 2}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%zu", i);
        flat_part(name, good[i].file, good[i].text);
        struct ls_dataset *set = opened(at("%s", name), "test");
        expect_samples(set, 3, (int[]){30, 31, 32}, good[i].labels);
        assert_int_equal(ls_dataset_info(set)->classes, 3);
        assert_false(ls_dataset_info(set)->whole);
        ls_dataset_close(set);
        set = opened(at("%s", name), "train");
        expect_samples(set, 3, (int[]){10, 11, 12}, (int[]){0, 1, 2});
        ls_dataset_close(set);
    }
}

static void numbers_of_flat_parts(void **state)
{
    (void)state;
    flat_part("q", "val.txt", "2\n1\n2\n"); /* from 0 or from 1? */
    struct ls_dataset *set = opened(at("q"), "test");
    SAID(
        "val.txt: the labels are numbers from 1, because none is 0 (none is the largest number either): 1 is the class n01 a");
    expect_samples(set, 3, (int[]){30, 31, 32}, (int[]){1, 0, 1});
    ls_dataset_close(set);
    put_text(at("q/synsets.txt"), "n03\nn01 a\nn02 toad\n"); /* another order than the sorted one */
    set = opened(at("q"), "test");
    SAID("1 is the class n03");
    expect_samples(set, 3, (int[]){30, 31, 32}, (int[]){0, 2, 0});
    ls_dataset_close(set);
    put_text(at("q/val.txt"), "0\n3\n0\n");
    refused(at("q"), "test", "val.txt: line 2: label 3, expected 0 to 2");
    put_text(at("q/val.txt"), "4\n1\n1\n");
    refused(at("q"), "test", "val.txt: line 1: label 4, expected 1 to 3");
    put_text(at("q/synsets.txt"), "n03\nn07\n");
    put_text(at("q/val.txt"), "2\n1\n1\n");
    refused(at("q"), "test", "line 1: label 2 is 'n07', a class that ");
    /* ILSVRC's numbers are not in the order of the synsets: the first is the kit fox, n02119789. */
    flat_part("r", "ILSVRC2012_validation_ground_truth.txt", "2\n1\n3\n");
    refused(at("r"), "test", "ground_truth.txt: these numbers are ILSVRC's, in the order of its meta.mat");
    put_text(at("r/synsets.txt"), "n03\nn02\nn01 a\n");
    set = opened(at("r"), "test");
    expect_samples(set, 3, (int[]){30, 31, 32}, (int[]){1, 2, 0});
    ls_dataset_close(set);
}

static void broken_flat_parts_are_refused(void **state)
{
    (void)state;
    flat_part("s", "val.txt", "1.jpg n02\n9.jpg n02\n");
    refused(at("s"), "test", "val.txt: line 2: expected the name of an image");
    put_text(at("s/val.txt"), "1.jpg n02\n1.jpg n03\n");
    refused(at("s"), "test", "val.txt: line 2: 1.jpg has a label in line 1 already");
    put_text(at("s/val.txt"), "1.jpg n02\n2.jpg n09\n");
    refused(at("s"), "test", "val.txt: line 2: 'n09' is neither a class of ");
    put_text(at("s/val.txt"), "n02\nn02\n");
    refused(at("s"), "test", "val.txt: 2 labels, one a line, but ");
    put_text(at("s/val.txt"), "\n\n");
    refused(at("s"), "test", "val.txt: the file is empty");
    put_text(at("s/val.txt"), "1.jpg n02\n");
    struct ls_dataset *set = opened(at("s"), "test");
    SAID("s/val: 2 images have no label in ");
    expect_samples(set, 1, (int[]){30}, (int[]){1});
    ls_dataset_close(set);
    put_text(at("s/val_labels.txt"), "n02\n");
    refused(at("s"), "test", "val.txt and val_labels.txt may both have the labels");
    unlink(at("s/val.txt"));
    unlink(at("s/val_labels.txt"));
    refused(at("s"), "test", "s/val: no folders in it: expected one for each class, or a file with the label of each");
    picture(at("u/train/a/1.jpg"), 10); /* Tiny ImageNet's layout with other names */
    picture(at("u/train/b/1.jpg"), 11);
    picture(at("u/val/images/v.jpg"), 12);
    put_text(at("u/val/val_annotations.txt"), "v.jpg\tb\t0\t0\n");
    set = opened(at("u"), "test");
    expect_samples(set, 1, (int[]){12}, (int[]){1});
    ls_dataset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_parts_have_label_files),
        cmocka_unit_test(numbers_of_flat_parts),
        cmocka_unit_test(broken_flat_parts_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
