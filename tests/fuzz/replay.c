/* Feeds every file of a corpus folder to a fuzz target, once, as a TAP test: a case passes when the target
 * comes back. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int regular(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file)
        return -1;
    uint8_t *data = NULL;
    int result = -1;
    if (fstat(fileno(file), &info) == 0) {
        size_t size = (size_t)info.st_size;
        /* Exactly as many bytes as the file has, so that ASan sees a read beyond the end. */
        data = malloc(size ? size : 1);
        if (data && fread(data, 1, size, file) == size) {
            (void)LLVMFuzzerTestOneInput(data, size);
            result = 0;
        }
    }
    free(data);
    fclose(file);
    return result;
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int failed = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    int n = scandir(argv[1], &entries, regular, alphasort);
    if (n <= 0) {
        printf("1..1\nnot ok 1 - %s holds no inputs\n", argv[1]);
        return 1;
    }
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        char path[4096];
        int written = snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        /* Said before the target runs: a crash is then the last line's. */
        printf("# %s\n", entries[i]->d_name);
        fflush(stdout);
        int result = written < (int)sizeof path ? replay(path) : -1;
        printf("%s %d - %s\n", result ? "not ok" : "ok", i + 1, entries[i]->d_name);
        failed += result != 0;
        free(entries[i]);
    }
    free(entries);
    return failed != 0;
}
