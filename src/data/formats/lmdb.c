/* LMDB folders of Caffe's Datum messages (data.mdb), in the order of their keys.
 *
 * The library finds the values once. They are then read from the file like records of other shards: a value lies in a page
 * whose first eight bytes are its number, which gives the offset in the file. Planes of three channels are blue, green,
 * red, as Caffe's convert_imageset writes them. */
#include "data/records/datum.h"
#include "data/formats/formats.h"
#include "data/records/records.h"
#include "base/text/utf8.h"

#include <stdio.h>
#include <string.h>

static bool is_shard(const char *name)
{
    return strcmp(name, "data.mdb") == 0;
}

#ifdef LS_LMDB
#include <lmdb.h>

enum { NAME = 64 };

/* The key as text, for messages. */
static void name_of(const MDB_val *key, char name[NAME])
{
    char text[NAME];
    snprintf(text, sizeof text, "%.*s", (int)(key->mv_size < NAME ? key->mv_size : NAME - 1),
             (const char *)key->mv_data);
    ls_utf8_printable(text, name, NAME);
}

/* Returns the offset of a value in the file. */
static uint64_t offset_of(const void *value, size_t page_size)
{
    uintptr_t at = (uintptr_t)value, page = at / page_size * page_size;
    uint64_t number;
    memcpy(&number, (const void *)page, sizeof number);
    return number * page_size + (at - page);
}

static enum ls_status add_value(struct ls_shard_scan *s, const MDB_val *key, const MDB_val *value, size_t page_size)
{
    struct ls_datum d;
    char name[NAME], label[16];
    uint64_t offset = offset_of(value->mv_data, page_size);
    name_of(key, name);
    if (!ls_datum_parse(value->mv_data, value->mv_size, &d))
        return ls_scan_refuse(s, offset, "the value of key %s is no Datum of Caffe", name);
    if (d.image.size == 0) {
        s->without_image++;
        return LS_OK;
    }
    if (d.label < 0)
        return ls_scan_refuse(s, offset, "the label of key %s is negative or too large", name);
    if (offset > s->size || value->mv_size > s->size - offset)
        return ls_scan_refuse(s, offset, "the value of key %s reaches beyond the end of the file", name);
    snprintf(label, sizeof label, "%d", (int)d.label);
    struct ls_record_entry e = {.offset = offset,
                                .bytes = (uint32_t)value->mv_size,
                                .image = (uint32_t)(d.image.data - (const uint8_t *)value->mv_data),
                                .image_bytes = (uint32_t)d.image.size};
    if (!d.is_encoded) {
        e.channels = (uint16_t)d.channels;
        e.height = (uint16_t)d.height;
        e.width = (uint16_t)d.width;
    }
    return ls_scan_add(s, &e, name, label);
}

static enum ls_status walk(struct ls_shard_scan *s, MDB_env *env, MDB_txn *txn, const char **why)
{
    MDB_dbi dbi;
    MDB_stat about;
    MDB_envinfo info;
    MDB_cursor *cursor;
    MDB_val key, value;
    enum ls_status st = LS_OK;
    int code = mdb_env_stat(env, &about);
    if (code == 0)
        code = mdb_env_info(env, &info);
    if (code == 0 && (info.me_last_pgno + 1) * about.ms_psize > s->size) { /* the library would read beyond the end */
        *why = "the file is cut off";
        return LS_BAD_INPUT;
    }
    if (code == 0)
        code = mdb_dbi_open(txn, NULL, 0, &dbi);
    if (code == 0)
        code = mdb_cursor_open(txn, dbi, &cursor);
    if (code != 0) {
        *why = mdb_strerror(code);
        return LS_BAD_INPUT;
    }
    while (st == LS_OK && (code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0)
        st = add_value(s, &key, &value, about.ms_psize);
    mdb_cursor_close(cursor);
    if (st == LS_OK && code != MDB_NOTFOUND) {
        *why = mdb_strerror(code);
        st = LS_BAD_INPUT;
    }
    return st;
}

static enum ls_status scan(struct ls_shard_scan *s)
{
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    const char *why = NULL;
    int code = mdb_env_create(&env);
    if (code == 0) /* nothing is written, and nobody writes meanwhile: no lock file */
        code = mdb_env_open(env, s->path, MDB_RDONLY | MDB_NOSUBDIR | MDB_NOLOCK, 0);
    if (code == 0)
        code = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
    enum ls_status st = LS_BAD_INPUT;
    if (code == 0)
        st = walk(s, env, txn, &why);
    else
        why = mdb_strerror(code);
    if (txn)
        mdb_txn_abort(txn);
    if (env)
        mdb_env_close(env);
    return why ? ls_scan_refuse(s, 0, "LMDB: %s", why) : st;
}
#else
static enum ls_status scan(struct ls_shard_scan *s)
{
    return ls_scan_refuse(s, 0, "this build reads no LMDB: install liblmdb-dev and build again");
}
#endif

/* --- the format --------------------------------------------------------------------------------------------------------- */

static const struct ls_record_format lmdb = {.what = "LMDB", .is_shard = is_shard, .scan = scan};

static bool recognise(const char *spec)
{
    return ls_records_recognise(spec, &lmdb);
}

static enum ls_status open_lmdb(const char *spec, const char *part, struct ls_dataset **set)
{
    return ls_records_open(spec, part, &lmdb, set);
}

const struct ls_dataset_ops ls_format_lmdb = {
    .format = "lmdb", .recognise = recognise, .open = open_lmdb, LS_RECORDS_OPS};
