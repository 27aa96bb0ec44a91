#include "base/text/base64.h"
#include "base/memory.h"

#include <stdint.h>

char *ls_base64(const void *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *in = bytes;
    char *text = ls_alloc((n + 2) / 3 * 4 + 1, 1), *out = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < n; i += 3) {
        size_t rest = n - i;
        uint32_t word = (uint32_t)in[i] << 16 | (rest > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (rest > 2 ? in[i + 2] : 0);
        *out++ = digits[word >> 18];
        *out++ = digits[word >> 12 & 63];
        *out++ = rest > 1 ? digits[word >> 6 & 63] : '=';
        *out++ = rest > 2 ? digits[word & 63] : '=';
    }
    *out = 0;
    return text;
}
