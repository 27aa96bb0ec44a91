/* The input of a fuzz target as text. */
#ifndef LS_TESTS_FUZZ_TEXT_H
#define LS_TESTS_FUZZ_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Ends with a zero byte; freed by the caller. NULL: there is no memory. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return NULL;
    memcpy(text, data, size);
    text[size] = 0;
    return text;
}

#endif
