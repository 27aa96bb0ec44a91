/* The messages of TensorBoard's hparams plugin. They are the content of the metadata of three tags. */
#include "config/table.h"
#include "report/tensorboard/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PLUGIN_EXPERIMENT = 2, PLUGIN_START = 3, PLUGIN_END = 4 };
enum { TYPE_TEXT = 1, TYPE_SWITCH = 2, TYPE_NUMBER = 3 };

/* The options that are part of what a run computes, and the data. */
static bool is_hparam(const struct ls_options *o, const struct ls_option *option)
{
    char room[32];
    bool data = strcmp(option->name, "data") == 0 || strcmp(option->name, "eval-data") == 0;
    return (option->commands & LS_CMD_TRAIN) && !option->here && !option->view && !option->secret &&
           (!option->free || data) && ls_option_get(o, option, room) != NULL;
}

/* Whole numbers above 2^53 are texts: the plugin's numbers are doubles. */
static int type_of(const struct ls_option *option, const char *text)
{
    if (option->type == LS_OPTION_SWITCH)
        return TYPE_SWITCH;
    bool number = option->type == LS_OPTION_WHOLE || option->type == LS_OPTION_REAL || option->type == LS_OPTION_SEED;
    number = number && strncmp(text, "auto", 4) != 0;
    return number && fabs(strtod(text, NULL)) <= 0x1p53 ? TYPE_NUMBER : TYPE_TEXT;
}

/* A value for a tag of the plugin. Its tensor has no elements; TensorBoard ignores a value without a tensor. */
static void put(struct ls_pb *pb, const char *tag, const struct ls_pb *content)
{
    enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, SHAPE_DIM = 2, TYPE_FLOAT = 1 };
    if (content->failed)
        pb->failed = true;
    if (pb->failed)
        return;
    size_t value = ls_summary_plugin(pb, tag, "hparams", content->bytes, content->size, 0);
    size_t tensor = ls_pb_open(pb, LS_VALUE_TENSOR);
    ls_pb_whole(pb, TENSOR_TYPE, TYPE_FLOAT);
    size_t shape = ls_pb_open(pb, TENSOR_SHAPE);
    ls_pb_close(pb, ls_pb_open(pb, SHAPE_DIM)); /* one dimension of size 0 */
    ls_pb_close(pb, shape);
    ls_pb_close(pb, tensor);
    ls_pb_close(pb, value);
}

static void put_hparam_infos(struct ls_pb *c, const struct ls_options *o)
{
    enum { INFOS = 4, NAME = 1, DESCRIPTION = 3, TYPE = 4 };
    char room[32];
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!is_hparam(o, option))
            continue;
        size_t info = ls_pb_open(c, INFOS);
        ls_pb_text(c, NAME, option->name);
        ls_pb_text(c, DESCRIPTION, option->help);
        ls_pb_whole(c, TYPE, type_of(option, ls_option_get(o, option, room)));
        ls_pb_close(c, info);
    }
}

static void put_metric_infos(struct ls_pb *c)
{
    enum { INFOS = 5, NAME = 1, TAG = 2, DISPLAY = 3 };
    static const char *const metrics[][2] = {{"eval/top1", "top-1, evaluation"},
                                             {"eval/top5", "top-5, evaluation"},
                                             {"eval/loss", "loss, evaluation"},
                                             {"epoch/loss", "loss, last epoch"},
                                             {"epoch/samples_per_s", "samples/s, last epoch"}};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        size_t info = ls_pb_open(c, INFOS), name = ls_pb_open(c, NAME);
        ls_pb_text(c, TAG, metrics[i][0]);
        ls_pb_close(c, name);
        ls_pb_text(c, DISPLAY, metrics[i][1]);
        ls_pb_close(c, info);
    }
}

static void put_hparams(struct ls_pb *c, const struct ls_options *o)
{
    enum { ENTRY = 1, KEY = 1, VALUE = 2, NUMBER = 2, TEXT = 3, SWITCH = 4 };
    char room[32];
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!is_hparam(o, option))
            continue;
        const char *text = ls_option_get(o, option, room);
        size_t entry = ls_pb_open(c, ENTRY);
        ls_pb_text(c, KEY, option->name);
        size_t value = ls_pb_open(c, VALUE);
        switch (type_of(option, text)) {
        case TYPE_NUMBER:
            ls_pb_double(c, NUMBER, strtod(text, NULL));
            break;
        case TYPE_SWITCH:
            ls_pb_whole(c, SWITCH, strcmp(text, "true") == 0);
            break;
        default:
            ls_pb_text(c, TEXT, text);
        }
        ls_pb_close(c, value);
        ls_pb_close(c, entry);
    }
}

void ls_summary_hparams(struct ls_pb *pb, const struct ls_options *o)
{
    enum { CREATED = 3, EXPERIMENT_NAME = 6, STARTED = 5 };
    struct ls_pb c = {0};
    size_t mark = ls_pb_open(&c, PLUGIN_EXPERIMENT);
    ls_pb_text(&c, EXPERIMENT_NAME, "lockstep");
    ls_pb_double(&c, CREATED, (double)time(NULL));
    put_hparam_infos(&c, o);
    put_metric_infos(&c);
    ls_pb_close(&c, mark);
    put(pb, "_hparams_/experiment", &c);

    ls_pb_clear(&c);
    mark = ls_pb_open(&c, PLUGIN_START);
    put_hparams(&c, o);
    ls_pb_double(&c, STARTED, (double)time(NULL));
    ls_pb_close(&c, mark);
    put(pb, "_hparams_/session_start_info", &c);
    ls_pb_release(&c);
}

void ls_summary_ended(struct ls_pb *pb, bool success)
{
    enum { STATUS = 1, ENDED = 2, SUCCESS = 1, FAILURE = 2 };
    struct ls_pb c = {0};
    size_t mark = ls_pb_open(&c, PLUGIN_END);
    ls_pb_whole(&c, STATUS, success ? SUCCESS : FAILURE);
    ls_pb_double(&c, ENDED, (double)time(NULL));
    ls_pb_close(&c, mark);
    put(pb, "_hparams_/session_end_info", &c);
    ls_pb_release(&c);
}
