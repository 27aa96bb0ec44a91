/* MNIST, embedded in the program as the four gzip files of data/mnist. Decompressing the images is the slowest part of a
 * start, so a thread does it in the background; the first read waits for it. */
#include "data/formats/formats.h"
#include "data/formats/idx.h"
#include "base/log.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define EMBED(name, file)                                                    \
    __asm__(".pushsection .rodata\n"                                         \
            ".balign 16\n"                                                   \
            ".global " #name "\n.hidden " #name "\n" #name ":\n"             \
            ".incbin \"" LS_MNIST_DIR "/" file "\"\n"                        \
            ".global " #name "_end\n.hidden " #name "_end\n" #name "_end:\n" \
            ".byte 0\n"                                                      \
            ".popsection\n");                                                \
    extern const uint8_t name[] __attribute__((visibility("hidden")));       \
    extern const uint8_t name##_end[] __attribute__((visibility("hidden")))

EMBED(ls_mnist_train_images, "train-images-idx3-ubyte.gz");
EMBED(ls_mnist_train_labels, "train-labels-idx1-ubyte.gz");
EMBED(ls_mnist_test_images, "t10k-images-idx3-ubyte.gz");
EMBED(ls_mnist_test_labels, "t10k-labels-idx1-ubyte.gz");

#define SIDE 28
#define CLASSES 10

struct mnist {
    struct ls_idx_set idx; /* first member: the readers of idx.h are used */
    const uint8_t *packed, *packed_end;
    pthread_mutex_t lock;
    pthread_t unpacker;
    bool joined; /* protected by the lock */
    enum ls_status unpacked;
    atomic_bool ready;
};

static void *unpack(void *argument)
{
    struct mnist *m = argument;
    struct ls_idx images;
    m->unpacked = ls_blob_gunzip(m->packed, (size_t)(m->packed_end - m->packed), m->idx.name, &m->idx.images);
    if (m->unpacked == LS_OK)
        m->unpacked = ls_idx_parse(m->idx.images.bytes, m->idx.images.size, m->idx.name, 3, &images);
    if (m->unpacked != LS_OK)
        return NULL;
    if (images.dims[0] != m->idx.base.info.count || images.dims[1] != SIDE || images.dims[2] != SIDE)
        m->unpacked = ls_fail(LS_BAD_INPUT, "%s: the program was built from other files than MNIST's", m->idx.name);
    m->idx.pixels = images.values;
    return NULL;
}

static void join(struct mnist *m)
{
    pthread_mutex_lock(&m->lock);
    if (!m->joined)
        pthread_join(m->unpacker, NULL);
    m->joined = true;
    pthread_mutex_unlock(&m->lock);
    atomic_store_explicit(&m->ready, true, memory_order_release);
}

static bool recognise(const char *spec)
{
    return strcmp(spec, "mnist") == 0;
}

static enum ls_status open_embedded(const char *spec, const char *part, struct ls_dataset **out)
{
    bool test = strcmp(part, "test") == 0;
    const uint8_t *packed = test ? ls_mnist_test_labels : ls_mnist_train_labels;
    const uint8_t *packed_end = test ? ls_mnist_test_labels_end : ls_mnist_train_labels_end;
    struct ls_idx labels;
    enum ls_status st;
    (void)spec;
    struct mnist *m = ls_alloc(1, sizeof *m);
    if (!m)
        return LS_FAILED;
    pthread_mutex_init(&m->lock, NULL);
    m->joined = true;
    m->packed = test ? ls_mnist_test_images : ls_mnist_train_images;
    m->packed_end = test ? ls_mnist_test_images_end : ls_mnist_train_images_end;
    m->idx.name = ls_strdup(test ? "mnist (embedded, test)" : "mnist (embedded, train)");
    if (!m->idx.name) {
        st = LS_FAILED;
        goto close_set;
    }
    LS_TRY_GOTO(close_set, ls_blob_gunzip(packed, (size_t)(packed_end - packed), m->idx.name, &m->idx.labels));
    LS_TRY_GOTO(close_set, ls_idx_parse(m->idx.labels.bytes, m->idx.labels.size, m->idx.name, 1, &labels));
    m->idx.label = labels.values;
    ls_idx_describe(&m->idx, labels.dims[0], SIDE, SIDE, CLASSES);
    if (pthread_create(&m->unpacker, NULL, unpack, m) == 0)
        m->joined = false;
    else
        unpack(m);
    *out = &m->idx.base;
    return LS_OK;
close_set:
    pthread_mutex_destroy(&m->lock);
    ls_idx_close(&m->idx.base);
    return st;
}

static enum ls_status read_embedded(struct ls_dataset *set, int64_t i, const struct ls_view *view,
                                    struct ls_image *image, int32_t *label)
{
    struct mnist *m = (struct mnist *)set;
    if (!atomic_load_explicit(&m->ready, memory_order_acquire))
        join(m);
    if (m->unpacked != LS_OK)
        return ls_image_refuse(image, "the embedded data is damaged: build the program again");
    return ls_idx_read(set, i, view, image, label);
}

static void close_embedded(struct ls_dataset *set)
{
    struct mnist *m = (struct mnist *)set;
    join(m);
    pthread_mutex_destroy(&m->lock);
    ls_idx_close(set);
}

const struct ls_dataset_ops ls_format_mnist = {
    .format = "mnist",
    .word = "mnist",
    .recognise = recognise,
    .open = open_embedded,
    .close = close_embedded,
    .read = read_embedded,
    .label = ls_idx_label,
    .where = ls_idx_where,
};
