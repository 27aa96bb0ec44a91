/* What a class, a data set and a path are: names that are matched, fingerprints that are compared. */
#include "data_files.h"
#include "base/text/utf8.h"
#include "config/options.h"
#include "data/classes.h"
#include "train/ranks/fingerprint.h"

#include <unistd.h>

/* --- classes ------------------------------------------------------------------------------------------ */

static int32_t label_of(const struct ls_dataset *set, int64_t i)
{
    return (int32_t)(i % set->info.classes);
}

static const struct ls_dataset_ops plain = {.format = "folder", .label = label_of};

/* Match a data set with a sample of each class; its labels then. */
static enum ls_status match(const struct ls_classes *model, const char *const *names, const char *const *ids, int n,
                            int32_t labels[8], char note[256])
{
    struct ls_dataset set = {.ops = &plain, .info = {.count = n, .classes = n, .class_names = names, .class_ids = ids}};
    enum ls_status st = ls_classes_match(model, &set, "data", note, 256);
    for (int i = 0; st == LS_OK && i < n; i++)
        labels[i] = ls_dataset_label(&set, i);
    ls_free(set.relabel);
    return st;
}

static void classes_are_matched_by_name(void **state)
{
    (void)state;
    const char *const trained[] = {"ant", "bee", "cat", "dog"};
    struct ls_classes model = {.count = 6, .named = 4, .names = trained};
    int32_t labels[8];
    char note[256];
    GOOD(match(&model, (const char *const[]){"cat", "ant"}, NULL, 2, labels, note));
    assert_true(labels[0] == 2 && labels[1] == 0);
    assert_string_equal(note, "data: 2 of the model's 4 classes have no sample there: bee, dog");
    GOOD(match(&model, trained, NULL, 4, labels, note));
    assert_true(labels[3] == 3 && !*note);
    BAD(match(&model, (const char *const[]){"dog", "beee", "zebu"}, NULL, 3, labels, note));
    SAID("data: the model has no classes 'beee' (did you mean 'bee'?), 'zebu'; its classes are ant, bee, cat, dog");
    GOOD(match(&model, NULL, NULL, 6, labels, note)); /* no names: positions */
    assert_true(labels[5] == 5);
    BAD(match(&model, NULL, NULL, 7, labels, note));
}

static void ids_come_before_words(void **state)
{
    (void)state;
    const char *const words[] = {"crane", "crane", "cup"}, *const ids[] = {"n1", "n2", "n3"};
    struct ls_classes model = {.count = 3, .named = 3, .names = words, .ids = ids};
    int32_t labels[8];
    char note[256];
    GOOD(match(&model, (const char *const[]){"cup", "crane"}, (const char *const[]){"n3", "n2"}, 2, labels, note));
    assert_true(labels[0] == 2 && labels[1] == 1);
    GOOD(match(&model, (const char *const[]){"n2", "n3"}, NULL, 2, labels, note)); /* folders called by wnid */
    assert_true(labels[0] == 1 && labels[1] == 2);
    GOOD(match(&model, (const char *const[]){"cup"}, NULL, 1, labels, note));
    assert_true(labels[0] == 2);
}

static void numbers_are_names(void **state)
{
    (void)state;
    const char *const digits[] = {"0", "1", "10", "2"};
    struct ls_classes nameless = {.count = 11}, named = {.count = 4, .named = 4, .names = digits};
    int32_t labels[8];
    char note[256];
    GOOD(match(&nameless, digits, NULL, 4, labels, note));
    assert_true(labels[1] == 1 && labels[2] == 10 && labels[3] == 2);
    GOOD(match(&named, NULL, NULL, 3, labels, note)); /* label 2 is the class called "2" */
    assert_true(labels[2] == 3);
    BAD(match(&named, NULL, NULL, 4, labels, note));
    nameless.foreign = true; /* trained by others, on folders in sorted order */
    GOOD(match(&nameless, digits, NULL, 4, labels, note));
    assert_true(labels[2] == 2 && *note);
}

static void bytes_that_are_not_utf8_are_spelled(void **state)
{
    (void)state;
    char room[32];
    assert_true(ls_utf8_valid("caf\xc3\xa9") && !ls_utf8_valid("caf\xe9") && !ls_utf8_valid("\xed\xa0\x80"));
    assert_string_equal(ls_utf8_escape("caf\xe9s", room, sizeof room), "caf\\xe9s");
    assert_string_equal(ls_utf8_escape("caf\xc3\xa9", room, 6), "caf\xc3\xa9");
    assert_string_equal(ls_utf8_escape("caf\xc3\xa9", room, 5), "caf");
    struct ls_classes model = {.count = 1, .named = 1, .names = (const char *const[]){"caf\\xe9"}};
    int32_t labels[8];
    char note[256];
    GOOD(match(&model, (const char *const[]){"caf\xe9"}, NULL, 1, labels, note));
}

/* --- fingerprints ------------------------------------------------------------------------------------- */

#define PART(count, order, classes)                                                                              \
    "{\"train\": {\"format\": \"folder\", \"count\": " count ", \"image\": \"3x0x0\", \"order\": \"" order "\"," \
    "\"n_classes\": 2, \"looked_into_one_of\": 1, \"classes\": [" classes "]}}"

static const char *difference(const char *was, const char *is)
{
    static char text[512];
    ls_fingerprint_compare(was, is, "train", "then", "now", text, sizeof text);
    return text;
}

static void differences_are_named(void **state)
{
    (void)state;
    const char *was = PART("9", "a", "[\"elm\", 4, \"n\", \"s\"], [\"oak\", 5, \"n\", \"s\"]");
    assert_string_equal(difference(was, was), "");
    assert_string_equal(difference(was, PART("9", "b", "[\"elm\", 4, \"n\", \"s\"], [\"oak\", 5, \"n\", \"s\"]")),
                        "the same samples in another order");
    assert_string_equal(difference(was, PART("8", "b", "[\"elm\", 4, \"n\", \"s\"], [\"oak\", 4, \"m\", \"t\"]")),
                        "class 'oak': 5 samples then, 4 now");
    assert_string_equal(difference(was, PART("9", "b", "[\"elm\", 4, \"m\", \"s\"], [\"oak\", 5, \"n\", \"t\"]")),
                        "class 'elm': files of other names; class 'oak': the same samples with other content");
    assert_string_equal(difference(was, "{\"test\": {}}"), "");
    assert_string_equal(difference(was, "not JSON"), "");
}

static void a_fingerprint_is_of_what_is_there(void **state)
{
    (void)state;
    struct ls_options o;
    struct ls_task task = {0};
    char *here, *there;
    GOOD(ls_options_default(&o));
    for (int place = 0; place < 2; place++) {
        put_text(at("%d/c/1.ppm", place), "one");
        put_text(at("%d/d/2.ppm", place), "two");
    }
    GOOD(ls_dataset_open(at("0"), "train", &task.train));
    GOOD(ls_fingerprint_take(&task, &o, &here));
    ls_dataset_close(task.train);
    GOOD(ls_dataset_open(at("1//"), "train", &task.train)); /* the place, and how it is spelled, do not matter */
    GOOD(ls_fingerprint_take(&task, &o, &there));
    assert_string_equal(here, there);
    ls_dataset_close(task.train);
    ls_free(there);
    put_text(at("1/d/2.ppm"), "twoo");
    GOOD(ls_dataset_open(at("1"), "train", &task.train));
    GOOD(ls_fingerprint_take(&task, &o, &there));
    assert_string_equal(difference(here, there), "class 'd': the same samples with other content");
    ls_dataset_close(task.train);
    ls_free(here);
    ls_free(there);
    ls_options_release(&o);
}

/* --- paths -------------------------------------------------------------------------------------------- */

static void paths_start_at_the_root(void **state)
{
    (void)state;
    char here[512], *path;
    assert_non_null(getcwd(here, sizeof here));
    assert_string_equal(path = ls_path_absolute("/a/b"), "/a/b");
    ls_free(path);
    path = ls_path_absolute("./x/y");
    assert_true(strncmp(path, here, strlen(here)) == 0 && strcmp(path + strlen(here), "/x/y") == 0);
    ls_free(path);
    assert_string_equal(path = ls_path_absolute("."), here);
    ls_free(path);
}

static void what_moved_with_the_run_is_found(void **state)
{
    (void)state;
    struct ls_options o;
    put_text(at("new/data/c/1.ppm"), "one");
    put_text(at("new/net.yaml"), "layers: []\n");
    put_text(at("new/runs/a/model.yaml"), "kept\n");
    put_text(at("new/runs/a/config.yaml"),
             "data: /gone/project/data\neval-data: mnist\nmodel: /gone/project/net.yaml\ninit: /gone/far.safetensors\n"
             "written-in: /gone/project/runs/a\n");
    GOOD(ls_options_default(&o));
    GOOD(ls_options_load(&o, at("new/runs/a/config.yaml")));
    assert_string_equal(o.data, at("new/data"));
    assert_string_equal(o.model, at("new/net.yaml"));
    assert_string_equal(o.model_yaml, "kept\n");
    assert_string_equal(o.eval_data, "mnist");
    assert_string_equal(o.init, "/gone/far.safetensors"); /* nowhere: the message names the path that was given */
    ls_options_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_matched_by_name), cmocka_unit_test(ids_come_before_words),
        cmocka_unit_test(numbers_are_names),           cmocka_unit_test(bytes_that_are_not_utf8_are_spelled),
        cmocka_unit_test(differences_are_named),       cmocka_unit_test(a_fingerprint_is_of_what_is_there),
        cmocka_unit_test(paths_start_at_the_root),     cmocka_unit_test(what_moved_with_the_run_is_found),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
