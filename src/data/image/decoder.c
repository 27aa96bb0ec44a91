/* Selects the JPEG decoder of a data set. */
#include "base/decoder.h"
#include "base/log.h"
#include "base/system/module.h"
#include "data/dataset.h"

#include <string.h>

enum ls_status ls_dataset_decode_by(struct ls_dataset *set, const char *name)
{
    static const char *const decoders[][2] = {
#define X(word, symbol) {#word, symbol},
#include "config/lists/decoders.def"
    };
    const void *found;
    const char *symbol = NULL;
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (strcmp(name, decoders[i][0]) == 0)
            symbol = decoders[i][1];
    if (!symbol)
        return LS_OK;
    LS_TRY(ls_module_load("lockstep-cuda.so", symbol, "leave --decode out: the CPU then decodes", &found));
    const struct ls_decoder_ops *ops = found;
    LS_TRY(ops->check());
    set->decoding.ops = ops;
    return LS_OK;
}

static enum ls_status fail(struct ls_image *image, const char *what, const char *why)
{
    ls_image_refuse(image, "%s: %s", what, why);
    return LS_FAILED;
}

enum ls_status ls_decoding_try(struct ls_image *image, bool suits, const struct ls_decoder_job *job, bool *done)
{
    struct ls_decoding *by = image->decoding;
    *done = false;
    if (!by)
        return LS_OK;
    if (suits && !image->decoder) {
        if (by->ops->open(&image->decoder) != LS_OK)
            return fail(image, "no decoder can be opened on the GPU", "is its memory used up?");
        image->decoder->ops = by->ops;
    }
    enum ls_decoded how =
        suits ? image->decoder->ops->decode(image->decoder, job, image->pixels) : LS_DECODER_UNSUPPORTED;
    if (how == LS_DECODER_FAILED)
        return fail(image, "it cannot be decoded on the GPU", image->decoder->why);
    *done = how == LS_DECODED;
    atomic_fetch_add(*done ? &by->done : &by->left, 1);
    return LS_OK;
}

void ls_decoding_report(const struct ls_decoding *by)
{
    long long left = by->left, all = left + by->done;
    const char *why = "--decode leaves it those that are progressive, in CMYK, turned by Exif or unusual";
    if (2 * left > all)
        ls_warn("%lld of %lld JPEGs were decoded by the CPU: %s", left, all, why);
    else if (left > 0)
        ls_note("%lld of %lld JPEGs were decoded by the CPU: %s", left, all, why);
}
