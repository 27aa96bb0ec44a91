/* TFRecord files of tf.Example messages, with the features that ImageNet's have. A record is
 *
 *     length (8 bytes)   its CRC (4)   data   CRC of the data (4)
 *
 * in little-endian order. The class of a sample is image/class/synset, or else the number image/class/label, which may begin
 * at 1. Checksums are compared when the index is made, and again whenever a sample is read. */
#define _GNU_SOURCE /* strcasestr */
#include "base/files/crc32c.h"
#include "data/records/example.h"
#include "data/formats/formats.h"
#include "data/records/records.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HEAD = 12, TAIL = 4, LARGEST = 256 << 20, TEXT = 256 };

static uint32_t little32(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static bool verify(const uint8_t *record, size_t bytes)
{
    return ls_crc32c_masked(record, bytes) == little32(record + bytes);
}

static enum ls_status take_record(struct ls_shard_scan *s, uint64_t at, const uint8_t *record, size_t bytes)
{
    struct ls_example e;
    char name[TEXT], label[TEXT];
    if (!verify(record, bytes))
        return ls_scan_refuse(s, at, "the checksum of the record is wrong: the file is damaged");
    if (!ls_example_parse(record, bytes, &e))
        return ls_scan_refuse(s, at, "the record is no tf.Example");
    if (!e.image.data) {
        s->without_image++;
        return LS_OK;
    }
    if (e.synset.data && e.synset.size > 0 && e.synset.size < TEXT)
        snprintf(label, sizeof label, "%.*s", (int)e.synset.size, (const char *)e.synset.data);
    else if (e.has_label && e.label >= 0)
        snprintf(label, sizeof label, "%" PRId64, e.label);
    else
        return ls_scan_refuse(s, at, "the record has no class: expected image/class/synset or image/class/label");
    if (!*label)
        return ls_scan_refuse(s, at, "image/class/synset is empty");
    if (e.filename.data && e.filename.size > 0 && e.filename.size < TEXT)
        snprintf(name, sizeof name, "%.*s", (int)e.filename.size, (const char *)e.filename.data);
    else
        snprintf(name, sizeof name, "record %" PRId64, s->count + s->without_image + 1);
    struct ls_record_entry entry = {.offset = at,
                                    .bytes = (uint32_t)bytes,
                                    .image = (uint32_t)(e.image.data - record),
                                    .image_bytes = (uint32_t)e.image.size};
    return ls_scan_add(s, &entry, name, label);
}

static enum ls_status scan_record(struct ls_shard_scan *s, uint64_t *at, uint8_t **room, size_t *room_size)
{
    uint8_t head[HEAD];
    if (s->size - *at < HEAD)
        return ls_scan_refuse(s, *at, "the file ends within the head of a record");
    if (!ls_scan_read(s, *at, head, HEAD))
        return LS_BAD_INPUT;
    uint64_t bytes = (uint64_t)little32(head) | (uint64_t)little32(head + 4) << 32;
    if (ls_crc32c_masked(head, 8) != little32(head + 8))
        return ls_scan_refuse(s, *at, "no record: the checksum of its length is wrong");
    if (bytes > LARGEST || s->size - *at - HEAD < bytes + TAIL)
        return ls_scan_refuse(s, *at, "a record of %" PRIu64 " bytes, but the file has %" PRIu64 " more", bytes,
                              s->size - *at - HEAD);
    if (bytes + TAIL > *room_size) {
        ls_free(*room);
        *room_size = 2 * (size_t)bytes + TAIL;
        *room = ls_alloc(*room_size, 1);
        if (!*room)
            return LS_FAILED;
    }
    if (!ls_scan_read(s, *at + HEAD, *room, (size_t)bytes + TAIL))
        return LS_BAD_INPUT;
    enum ls_status st = take_record(s, *at + HEAD, *room, (size_t)bytes);
    *at += HEAD + bytes + TAIL;
    return st;
}

static enum ls_status scan(struct ls_shard_scan *s)
{
    uint8_t *room = NULL;
    size_t room_size = 0;
    enum ls_status st = LS_OK;
    for (uint64_t at = 0; at < s->size && st == LS_OK;)
        st = scan_record(s, &at, &room, &room_size);
    ls_free(room);
    return st;
}

/* --- the format --------------------------------------------------------------------------------------------------------- */

/* train-00000-of-00128, or a name that contains .tfrecord. */
static bool is_shard(const char *name)
{
    const char *of = strstr(name, "-of-");
    if (strcasestr(name, ".tfrecord") && !strstr(name, ".lockstep") && !strstr(name, ".gz"))
        return true;
    return of && of - name > 6 && strspn(of - 5, "0123456789") == 5 && strlen(of + 4) == 5 &&
           strspn(of + 4, "0123456789") == 5;
}

static const struct ls_record_format tfrecord = {
    .what = "TFRecord", .is_shard = is_shard, .scan = scan, .verify = verify, .behind = TAIL};

static bool recognise(const char *spec)
{
    return ls_records_recognise(spec, &tfrecord);
}

static enum ls_status open_tfrecord(const char *spec, const char *part, struct ls_dataset **set)
{
    return ls_records_open(spec, part, &tfrecord, set);
}

const struct ls_dataset_ops ls_format_tfrecord = {
    .format = "tfrecord", .recognise = recognise, .open = open_tfrecord, LS_RECORDS_OPS};
