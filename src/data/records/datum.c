/* Datum: channels = 1, height = 2, width = 3, data = 4, label = 5, float_data = 6, encoded = 7. */
#include "data/records/datum.h"

enum { CHANNELS = 1, HEIGHT = 2, WIDTH = 3, DATA = 4, LABEL = 5, ENCODED = 7, LARGEST_SIDE = 65500 };

static void take(const struct ls_message_field *f, struct ls_datum *d)
{
    int32_t value = f->value <= INT32_MAX ? (int32_t)f->value : -1;
    if (f->number == DATA && f->type == LS_MESSAGE_BYTES)
        d->image = f->bytes;
    if (f->type != LS_MESSAGE_NUMBER)
        return;
    switch (f->number) {
    case CHANNELS:
        d->channels = value;
        break;
    case HEIGHT:
        d->height = value;
        break;
    case WIDTH:
        d->width = value;
        break;
    case LABEL:
        d->label = value;
        break;
    case ENCODED:
        d->is_encoded = f->value != 0;
        break;
    default:
        break;
    }
}

static bool is_side(int32_t n)
{
    return n > 0 && n <= LARGEST_SIDE;
}

bool ls_datum_parse(const uint8_t *data, size_t size, struct ls_datum *d)
{
    struct ls_bytes message = {data, size};
    struct ls_message_field f;
    *d = (struct ls_datum){0};
    while (message.size > 0) {
        if (!ls_message_field(&message, &f))
            return false;
        take(&f, d);
    }
    if (d->is_encoded || d->image.size == 0)
        return true;
    return (d->channels == 1 || d->channels == 3) && is_side(d->height) && is_side(d->width) &&
           d->image.size == (size_t)d->channels * (size_t)d->height * (size_t)d->width;
}
