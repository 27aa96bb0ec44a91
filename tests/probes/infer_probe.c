/* Two models in two threads, and one model in two: infer_probe RUN RUN IMAGE.ppm. Every answer must be that of a thread alone.
 * Prints "same" at the end. */
#include <lockstep-infer.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 40, TOP = 3 };

struct task {
    const char *path;         /* a model to open, or */
    struct lockstep_model *m; /* one to share */
    const unsigned char *bytes;
    size_t size;
    struct lockstep_guess expected[TOP];
    int n, wrong;
};

static int differs(const struct lockstep_guess *a, const struct lockstep_guess *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].index != b[i].index || a[i].probability != b[i].probability || strcmp(a[i].name, b[i].name) != 0)
            return 1;
    return 0;
}

static void *work(void *argument)
{
    struct task *t = argument;
    struct lockstep_model *m = t->m ? t->m : lockstep_model_open(t->path, 1);
    for (int i = 0; i < ROUNDS; i++) {
        struct lockstep_guess top[TOP];
        int n = lockstep_model_classify(m, t->bytes, t->size, top, TOP);
        t->wrong += n != t->n || differs(top, t->expected, n);
        t->wrong +=
            lockstep_model_classify(m, "no image", 8, top, TOP) != -1 || !strstr(lockstep_model_error(), "image");
    }
    if (!t->m)
        lockstep_model_close(m);
    return NULL;
}

/* The pixels of a P6 file in rows with a gap give what its bytes give. */
static int raw_differs(struct lockstep_model *m, const struct task *t)
{
    int width, height, begin = 0;
    struct lockstep_guess top[TOP];
    if (sscanf((const char *)t->bytes, "P6 %d %d 255%n", &width, &height, &begin) != 2)
        return 1;
    size_t row = 3 * (size_t)width, stride = row + 5;
    unsigned char *pixels = malloc((size_t)height * stride);
    for (int y = 0; y < height; y++)
        memcpy(pixels + (size_t)y * stride, t->bytes + begin + 1 + (size_t)y * row, row);
    int n = lockstep_model_classify_rgb(m, pixels, height, width, stride, top, TOP);
    int bad = n != t->n || differs(top, t->expected, n);
    bad |= lockstep_model_classify_rgb(m, pixels, 0, width, 0, top, TOP) != -1;
    bad |= lockstep_model_classify_rgb(m, pixels, height, width, 5, top, TOP) != -1;
    free(pixels);
    return bad;
}

int main(int argc, char **argv)
{
    static unsigned char bytes[1 << 20];
    FILE *f = argc == 4 ? fopen(argv[3], "rb") : NULL;
    size_t size = f ? fread(bytes, 1, sizeof bytes - 1, f) : 0;
    struct task tasks[4];
    pthread_t threads[4];
    struct lockstep_model *shared = NULL;
    int wrong = 0;
    if (size == 0)
        return 2;
    for (int i = 0; i < 4; i++) {
        struct lockstep_model *m = lockstep_model_open(argv[i == 1 ? 2 : 1], 1);
        if (!m) {
            fprintf(stderr, "%s\n", lockstep_model_error());
            return 1;
        }
        tasks[i] = (struct task){.path = argv[i == 1 ? 2 : 1], .bytes = bytes, .size = size};
        tasks[i].n = lockstep_model_classify(m, bytes, size, tasks[i].expected, TOP);
        for (int k = 0; k < tasks[i].n; k++) /* names belong to a model that stays open */
            tasks[i].expected[k].name = strdup(tasks[i].expected[k].name);
        wrong += raw_differs(m, &tasks[i]) || tasks[i].n < 1;
        wrong += lockstep_model_class_name(m, lockstep_model_classes(m)) != NULL;
        if (i == 2)
            shared = m;
        else
            lockstep_model_close(m);
    }
    tasks[2].m = tasks[3].m = shared;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, &tasks[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        wrong += tasks[i].wrong;
    }
    lockstep_model_close(shared);
    lockstep_model_close(NULL);
    printf(wrong ? "%d wrong\n" : "same\n", wrong);
    return wrong > 0;
}
