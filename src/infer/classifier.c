#include "infer/classifier.h"
#include "base/log.h"
#include "base/text/utf8.h"
#include "checkpoint/model_snapshot.h"
#include "checkpoint/weights.h"
#include "exec/dtype.h"

#include <math.h>
#include <stdio.h>

enum ls_status ls_classifier_open(struct ls_classifier *c, struct ls_options *o, const char *name, int64_t batch)
{
    *c = (struct ls_classifier){.seed = o->seed};
    LS_TRY(ls_located_model_find(&c->trained, name, o));
    LS_TRY(ls_dtype_settle(o, NULL, NULL));
    ls_model_snapshot_warn(o);
    LS_TRY(ls_task_size(&c->task, o));
    c->task.size.batch = batch;
    LS_TRY(ls_task_transform(o, &c->trained.card, NULL, &c->task.size, &c->augment));
    ls_augment_describe(&c->augment, c->transform);
    LS_TRY(ls_engine_open(&c->engine, o, NULL, &c->task.size, NULL, LS_ENGINE_EVAL));
    LS_TRY(ls_weights_load(&c->engine, LS_WEIGHTS_MODEL, c->trained.file));
    ls_checkpoint_let_go(&c->trained.held);
    c->labels = ls_alloc((size_t)batch, sizeof *c->labels);
    if (!c->labels)
        return LS_FAILED;
    for (int64_t i = 0; i < batch; i++)
        c->labels[i] = -1;
    return LS_OK;
}

void ls_classifier_release(struct ls_classifier *c)
{
    ls_free(c->labels);
    ls_engine_close(&c->engine);
    ls_task_close(&c->task);
    ls_located_model_release(&c->trained);
    *c = (struct ls_classifier){0};
}

int64_t ls_classifier_values(const struct ls_classifier *c)
{
    return c->task.size.channels * c->task.size.height * c->task.size.width;
}

enum ls_status ls_classifier_run(struct ls_classifier *c, const float *planes, int64_t n, float *logits)
{
    const struct ls_backend *b = c->engine.backend;
    struct ls_net *net = &c->engine.eval;
    struct ls_run run = {.seed = c->seed, .valid = n};
    LS_TRY(b->input(net->program, net->graph.input, planes));
    LS_TRY(b->input(net->program, net->graph.label, c->labels));
    LS_TRY(b->run(net->program, 0, net->graph.n_nodes, &run));
    return b->read(net->program, net->graph.logits, logits);
}

const char *ls_classifier_name(const struct ls_classifier *c, int64_t class_index, char *name, size_t room)
{
    const struct ls_model_card *card = &c->trained.card;
    if (card->class_names && class_index < card->named)
        return ls_utf8_escape(card->class_names[class_index], name, room);
    snprintf(name, room, "class %lld", (long long)class_index);
    return name;
}

int ls_classifier_top(const float *scores, int64_t classes, int top, struct ls_guess *guesses)
{
    int n = 0;
    for (int64_t c = 0; c < classes; c++) {
        int at = n < top ? n++ : top;
        for (; at > 0 && scores[guesses[at - 1].index] < scores[c]; at--)
            if (at < top)
                guesses[at] = guesses[at - 1];
        if (at < top)
            guesses[at].index = c;
    }
    double sum = 0;
    for (int64_t c = 0; c < classes && n > 0; c++)
        sum += exp((double)scores[c] - (double)scores[guesses[0].index]);
    for (int i = 0; i < n; i++)
        guesses[i].probability = exp((double)scores[guesses[i].index] - (double)scores[guesses[0].index]) / sum;
    return n;
}
