/* One header block of a tar file. */
#ifndef LS_DATA_RECORDS_TAR_HEADER_H
#define LS_DATA_RECORDS_TAR_HEADER_H

#include <stdint.h>

enum { LS_TAR_BLOCK = 512, LS_TAR_PATH = 4096 };

struct ls_tar_header {
    char path[LS_TAR_PATH];
    uint64_t size;
    char type;
};

enum ls_tar_kind {
    LS_TAR_MEMBER,
    LS_TAR_END,     /* a block of zeros ends the file */
    LS_TAR_FOREIGN, /* the checksum is wrong: not a header */
    LS_TAR_NO_SIZE  /* the size is no number; the path is set */
};
enum ls_tar_kind ls_tar_header(const uint8_t block[LS_TAR_BLOCK], struct ls_tar_header *header);

#endif
