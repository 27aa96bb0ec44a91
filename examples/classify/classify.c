/* Classifies image files with a trained model: classify RUN IMAGE...
 *
 *     cc -O2 classify.c -o classify $(pkg-config --cflags --libs lockstep-infer) */
#include <lockstep-infer.h>

#include <stdio.h>
#include <stdlib.h>

enum { TOP = 5 };

/* The whole file; NULL: it cannot be read. */
static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        long end = ftell(f);
        bytes = end > 0 ? malloc((size_t)end) : NULL;
        rewind(f);
        *size = bytes ? fread(bytes, 1, (size_t)end, f) : 0;
    }
    if (f)
        fclose(f);
    return bytes;
}

int main(int argc, char **argv)
{
    struct lockstep_guess top[TOP];
    int failed = 0;
    struct lockstep_model *m = argc > 2 ? lockstep_model_open(argv[1], 0) : NULL;
    if (!m) {
        fprintf(stderr, "%s\n", argc > 2 ? lockstep_model_error() : "usage: classify RUN IMAGE...");
        return 1;
    }
    for (int k = 2; k < argc; k++) {
        size_t size = 0;
        char *bytes = read_file(argv[k], &size);
        int n = lockstep_model_classify(m, bytes, size, top, TOP);
        free(bytes);
        if (n < 0)
            fprintf(stderr, "%s: %s\n", argv[k], lockstep_model_error());
        else
            printf("%s\n", argv[k]);
        for (int i = 0; i < n; i++)
            printf("  %-24s %6.2f%%\n", top[i].name, 100 * top[i].probability);
        failed |= n < 0;
    }
    lockstep_model_close(m);
    return failed;
}
