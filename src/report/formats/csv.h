/* Comma-separated values. */
#ifndef LS_REPORT_CSV_H
#define LS_REPORT_CSV_H

#include <stdio.h>

/* Writes a field, quoted where RFC 4180 asks for it. Control characters are escaped. */
void ls_csv_put(const char *text, FILE *out);

#endif
