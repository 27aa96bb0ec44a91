/* An event file of TensorBoard: records of a length, its checksum, an Event message and its checksum. The checksums are masked
 * CRC-32C. A reader stops at a record that a killed process left incomplete. */
#ifndef LS_REPORT_TENSORBOARD_EVENT_FILE_H
#define LS_REPORT_TENSORBOARD_EVENT_FILE_H

#include "base/status.h"
#include "base/protobuf.h"
#include <stdio.h>

struct ls_event_file {
    FILE *file;     /* owned; NULL: closed */
    char *path;     /* owned */
    double flushed; /* ls_now() of the last flush */
};

/* Creates a new file in the folder, which is made if it is missing. Its name sorts behind the event files that are there:
 * TensorBoard reads them in this order. *others: there are such files. */
enum ls_status ls_event_file_open(struct ls_event_file *f, const char *folder, bool *others);
/* Begins an Event in pb, with the time and the step. */
void ls_event_begin(struct ls_pb *pb, int64_t step);
/* Writes the event that pb holds and clears pb. It reaches the file within about a second, with `now` at once. Allocates
 * nothing. A failure, of pb too, is reported. */
enum ls_status ls_event_file_put(struct ls_event_file *f, struct ls_pb *pb, bool now);
/* Makes all events durable. May be called on a zeroed struct. */
enum ls_status ls_event_file_sync(struct ls_event_file *f);
/* May be called on a zeroed struct, and twice. */
enum ls_status ls_event_file_close(struct ls_event_file *f);

#endif
