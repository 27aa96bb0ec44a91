/* CIFAR files from outside; the first byte chooses between CIFAR-10 and CIFAR-100. */
#include "base/log.h"
#include "data/formats/cifar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t records;
    if (size == 0)
        return 0;
    ls_log_mute(1);
    (void)ls_cifar_parse(data + 1, size - 1, "input", data[0] & 1 ? &ls_cifar100 : &ls_cifar10, &records);
    return 0;
}
