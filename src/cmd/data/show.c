/* lockstep data show [DATA]: writes a contact sheet of samples as a network sees them. */
#include "cmd/data/data_commands.h"
#include "cmd/data/sheet/sheet.h"

#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/interrupt.h"
#include "base/text/text.h"

#include <stdio.h>
#include <string.h>

/* Sets a text option, as the command line would. */
static enum ls_status set(char **option, const char *text)
{
    char *copy = ls_strdup(text);
    if (!copy)
        return LS_FAILED;
    ls_free(*option);
    *option = copy;
    return LS_OK;
}

/* Images of many sizes need the size of an input. Without --input and --model it is --augment's, or that of most models. */
static enum ls_status choose_size(struct ls_options *o)
{
    struct ls_dataset *data;
    struct ls_augment a;
    char input[64];
    if (o->input || ls_options_given(o, "model"))
        return LS_OK;
    LS_TRY(ls_dataset_open(o->data, "train", &data));
    enum ls_status st = ls_augment_parse(o->augment, true, ls_dataset_info(data), 0, 0, 0, &a);
    bool various = ls_dataset_info(data)->height == 0;
    ls_dataset_close(data);
    if (st != LS_OK || !various)
        return st;
    snprintf(input, sizeof input, "%lldx%lldx%lld", (long long)a.channels, (long long)a.height, (long long)a.width);
    return set(&o->input, input);
}

static enum ls_status write_out(const char *path, const uint8_t *bytes, size_t size)
{
    if (strcmp(path, "-") != 0)
        return ls_file_write(path, bytes, size);
    if (fwrite(bytes, 1, size, stdout) != size)
        return ls_fail(LS_FAILED, "standard output: not everything could be written");
    return LS_OK;
}

static enum ls_status show(struct ls_options *o, const char *path, bool html)
{
    struct ls_sheet s;
    uint8_t *bytes;
    size_t size;
    char title[512];
    LS_TRY(choose_size(o));
    LS_TRY(ls_sheet_load(&s, o));
    enum ls_status st = html ? ls_sheet_html(&s, o, &bytes, &size) : ls_sheet_png(&s, o, &bytes, &size);
    if (st == LS_OK) {
        st = write_out(path, bytes, size);
        ls_free(bytes);
    }
    ls_sheet_title(&s, o, title);
    if (st == LS_OK && !o->quiet && strcmp(path, "-") != 0)
        ls_print("%s: %s", path, title);
    ls_sheet_release(&s);
    return st;
}

enum ls_status ls_data_show(struct ls_options *o, int n_words, char **words)
{
    const char *path = o->output ? o->output : "samples.png";
    bool html = ls_ends_in(path, ".html") || ls_ends_in(path, ".htm");
    if (n_words > 1)
        return ls_fail(LS_USAGE, "one data set at a time: '%s' is one too many", words[1]);
    if (!html && !ls_ends_in(path, ".png") && strcmp(path, "-") != 0)
        return ls_fail(LS_USAGE, "--output %s: the name ends in .png or .html, which says what is written", path);
    if (n_words > 0)
        LS_TRY(set(&o->data, words[0]));
    ls_interrupt_watch();
    enum ls_status st = show(o, path, html);
    ls_interrupt_release();
    return st;
}
