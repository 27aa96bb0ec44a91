/* Encodes PNG files. */
#ifndef LS_REPORT_PNG_H
#define LS_REPORT_PNG_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* Encodes rows of interleaved bytes; channels is 1 (grey) or 3 (RGB). *bytes is the file, owned by the caller. */
enum ls_status ls_png_encode(const uint8_t *pixels, int channels, int height, int width, uint8_t **bytes, size_t *size);

#endif
