/* Binary records of CIFAR: one label byte (CIFAR-10) or two (CIFAR-100: coarse, fine), then 32 x 32 bytes each
 * of red, green and blue. */
#ifndef LS_DATA_FORMATS_CIFAR_H
#define LS_DATA_FORMATS_CIFAR_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct ls_cifar_kind {
    int label_bytes, classes;            /* the label is the last of the label bytes */
    int64_t train_records, test_records; /* in each official file */
    const char *const *train_files;      /* ends with NULL */
    const char *test_file, *names_file;
    float mean[3], deviation[3];
};
extern const struct ls_cifar_kind ls_cifar10, ls_cifar100;

#define LS_CIFAR_SIDE 32
#define LS_CIFAR_PIXELS (3 * LS_CIFAR_SIDE * LS_CIFAR_SIDE)

/* Checks one file: complete records, each label in range. *records gets their number. */
enum ls_status ls_cifar_parse(const uint8_t *bytes, size_t size, const char *name, const struct ls_cifar_kind *kind,
                              int64_t *records);

#endif
