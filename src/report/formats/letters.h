/* Draws text into an image, with letters of 5 x 7 points. */
#ifndef LS_REPORT_LETTERS_H
#define LS_REPORT_LETTERS_H

#include <stdint.h>

enum { LS_LETTER_WIDTH = 6, LS_LETTER_HEIGHT = 11 }; /* with the gaps between letters and lines */

struct ls_canvas {
    uint8_t *pixels; /* height x width x 3 */
    int height, width;
};

/* Draws at most `letters` letters of a UTF-8 text in that colour. (left, top) is the corner of the first; a point is
 * scale x scale pixels. Letters outside of ASCII are drawn as a box. Points outside of the canvas are left out. */
void ls_letters_draw(const struct ls_canvas *canvas, int left, int top, int scale, const uint8_t colour[3],
                     const char *text, int letters);

#endif
