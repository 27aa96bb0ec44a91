/* lockstep help augment: explains the words of --augment. */
#include "base/text/help.h"
#include "cmd/help/help.h"
#include "data/data.h"

#include <string.h>

/* Prints what auto stands for, as the parser of --augment resolves it. */
static void print_auto(const char *name, const struct ls_dataset_info *info, FILE *out)
{
    struct ls_augment train, eval;
    char of_train[LS_AUGMENT_TEXT], of_eval[LS_AUGMENT_TEXT];
    if (ls_augment_parse("auto", true, info, 0, 0, 0, &train) == LS_OK &&
        ls_augment_parse("auto", false, info, 0, 0, 0, &eval) == LS_OK)
        fprintf(out, "  %-32s%-18s%s\n", name, ls_augment_text(&train, of_train), ls_augment_text(&eval, of_eval));
}

static void print_words(FILE *out)
{
    struct ls_help_row rows[16 + LS_EFFECTS] = {{NULL, NULL}};
    char names[16 + LS_EFFECTS][32];
    int n = 0;
    for (const struct ls_augment_word *w = ls_augment_words; w->name && n < 15; w++, n++) {
        snprintf(names[n], sizeof names[n], "%s%s", w->name, w->argument);
        rows[n] = (struct ls_help_row){names[n], w->help};
    }
    for (int i = 0; i < LS_EFFECTS; i++, n++) {
        const char *name, *argument, *help;
        ls_effect_word(i, &name, &argument, &help);
        snprintf(names[n], sizeof names[n], "%s%s", name, argument);
        rows[n] = (struct ls_help_row){names[n], help};
    }
    rows[n] = (struct ls_help_row){NULL, NULL};
    ls_help_rows(rows, 2, out);
}

enum ls_status ls_help_augment(const char *what, FILE *out)
{
    static const struct {
        const char *name;
        struct ls_dataset_info info;
    } sets[] = {
        {"MNIST and grey images, 1x28x28", {.format = "mnist", .channels = 1, .height = 28, .width = 28}},
        {"CIFAR, 3x32x32", {.format = "cifar10", .channels = 3, .height = 32, .width = 32}},
        {"Tiny ImageNet, 3x64x64", {.format = "tiny-imagenet", .channels = 3, .height = 64, .width = 64}},
        {"folders, --input 3x224x224", {.format = "folder", .channels = 3}},
        {"synthetic, of any size", {.format = "synthetic", .channels = 3, .height = 32, .width = 32}},
    };
    (void)what;
    fprintf(out, "--augment auto | none | WORD,WORD,...\n\n");
    ls_help_text(
        "How images are changed on their way to the model. All are then normalised: scaled to 0..1, less the data "
        "set's mean, divided by its deviation.",
        0, out);
    fprintf(out, "\nWords\n");
    print_words(out);
    putc('\n', out);
    ls_help_text(
        "They are applied in this order, whatever the order of the list. Only one of rrc, crop and center may be "
        "given, and no resize with rrc. SIZE is the size of the input where --input is not given. An image that is "
        "smaller than the input, or of another size with none of the three, is first scaled until it just covers it.",
        0, out);
    putc('\n', out);
    ls_help_text(
        "Random choices depend on --seed, the epoch and the sample alone. Evaluation and predict make none: they keep "
        "resize and center, look at the middle where training crops, and do not mirror. --eval-resize and "
        "--eval-crop set what they see; the model's file keeps it.",
        0, out);
    fprintf(out, "\nWhat auto, the default, stands for\n  %-32s%-18s%s\n", "", "train", "eval, predict");
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        print_auto(sets[i].name, &sets[i].info, out);
    fprintf(out, "\nExamples\n"
                 "  lockstep train --data cifar-10 --augment crop:4,flip\n"
                 "  lockstep train --data photos --augment rrc:160,flip --model resnet18\n"
                 "  lockstep train --data photos --augment resize:146,center --input 3x128x128\n");
    return LS_OK;
}
