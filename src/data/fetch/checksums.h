/* Files of checksums, as sha256sum and md5sum write them: "HEX  NAME" a line. */
#ifndef LS_DATA_FETCH_CHECKSUMS_H
#define LS_DATA_FETCH_CHECKSUMS_H

#include "base/status.h"

/* Finds the checksum of a file. The name of the file may have a folder before it. Writes "sha256:HEX" or "md5:HEX". */
enum ls_status ls_checksums_find(const char *path, const char *name, char checksum[80]);

#endif
