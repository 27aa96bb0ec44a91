#include "base/text/utf8.h"

#include <stdio.h>
#include <string.h>

/* Returns the length in bytes of the UTF-8 character at p, or 0 if there is none. */
static size_t character(const unsigned char *p)
{
    size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90);
    bool outside = (*p == 0xed && p[1] > 0x9f) || (*p == 0xf4 && p[1] > 0x8f);
    return n > 2 && (overlong || outside) ? 0 : n;
}

bool ls_utf8_valid(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t n = character(p);
        if (n == 0)
            return false;
        p += n;
    }
    return true;
}

int ls_utf8_length(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* C0, DEL, and C1 in its UTF-8 encoding. A tab is allowed: some lines separate columns with it. */
static bool is_control(const unsigned char *p)
{
    return (*p < 0x20 && *p != '\t') || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0);
}

static const char *escape(const char *text, bool controls, char *room, size_t size)
{
    size_t used = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t n = character(p), step = n ? n : 1;
        bool plain = n && !(controls && is_control(p));
        size_t needs = plain ? n : 4 * step;
        if (used + needs + 1 > size)
            break;
        if (plain)
            memcpy(room + used, p, n);
        for (size_t i = 0; !plain && i < step; i++)
            snprintf(room + used + 4 * i, size - used - 4 * i, "\\x%02x", p[i]);
        used += needs;
        p += step;
    }
    room[used] = 0;
    return room;
}

const char *ls_utf8_escape(const char *text, char *room, size_t size)
{
    return escape(text, false, room, size);
}

const char *ls_utf8_printable(const char *text, char *room, size_t size)
{
    return escape(text, true, room, size);
}
