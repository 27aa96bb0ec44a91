/* One line of metrics.jsonl as a record. Part of report/metrics/metrics_reader.h. */
#ifndef LS_REPORT_METRICS_LINE_H
#define LS_REPORT_METRICS_LINE_H

#include "report/metrics/metrics_reader.h"

enum { LS_RECORD_SLACK = 64 };

/* Fills *r from a line of `length` bytes. A newline follows them, and behind it LS_RECORD_SLACK bytes that may be read;
 * their values do not matter. successor is memory between calls: it makes lines with the same keys in the
 * same order fast. Returns false if the line is broken; *r is then undefined. */
bool ls_record_parse(const char *line, size_t length, unsigned char successor[64], struct ls_record *r);

#endif
