/* Image files from outside. The first byte says how the image is looked at: whole, scaled, or a random part.
 */
#include "base/log.h"
#include "data/data.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIDE = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_dataset_info info = {.channels = 3, .format = "folder", .deviation = {1, 1, 1}};
    struct ls_augment a;
    struct ls_image image = {0}, scratch = {0};
    float planes[3 * SIDE * SIDE];
    if (size == 0)
        return 0;
    ls_log_mute(1);
    const char *text = data[0] & 1 ? "rrc,flip" : data[0] & 2 ? "resize:40,center" : "crop:4";
    int channels = data[0] & 4 ? 1 : 3;
    if (ls_augment_parse(text, true, &info, channels, SIDE, SIDE, &a) != LS_OK)
        return 0;
    struct ls_view view = ls_augment_view(&a, 1, 0, data[0]);
    memset(planes, 0, sizeof planes);
    if (ls_image_decode(data + 1, size - 1, &view, channels, &image) == LS_OK)
        (void)ls_augment_apply(&a, &image, 1, 0, data[0], &scratch, planes);
    ls_image_release(&image);
    ls_image_release(&scratch);
    return 0;
}
