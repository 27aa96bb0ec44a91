/* Any text as a list of images: refused, or a data set whose samples have a label below the number of classes. */
#include "base/log.h"
#include "data/formats/list.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_files *f;
    char *text = fuzz_text(data, size), where[256];
    ls_log_mute(1);
    if (!text)
        return 0;
    if (ls_files_new(&f) == LS_OK) {
        if (ls_list_parse(f, "list.txt", "folder", text, size) == LS_OK) {
            struct ls_identity id = {0};
            for (int64_t i = 0; i < f->base.info.count; i++) {
                int32_t label = ls_files_label(&f->base, i);
                if (label < 0 || label >= f->base.info.classes || !f->class_names[label][0])
                    __builtin_trap();
                ls_files_where(&f->base, i, where, sizeof where);
                ls_files_identify(&f->base, i, &id);
            }
        }
        ls_files_close(&f->base);
    }
    free(text);
    return 0;
}
