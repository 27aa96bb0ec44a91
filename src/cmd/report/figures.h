/* Every plot of a page as an SVG file of its own, for papers and other pages. */
#ifndef LS_CMD_REPORT_FIGURES_H
#define LS_CMD_REPORT_FIGURES_H

#include "base/status.h"

/* Writes the plots of a page to a directory, which is made if it is not there. A file is named after the title of its
 * figure; the second one of a title has -2 at its end, and so on. A figure of one run among several begins with "run-".
 * Files of these names are replaced. *n becomes the number of files. */
enum ls_status ls_figures_write(const char *page, const char *directory, int *n);

#endif
