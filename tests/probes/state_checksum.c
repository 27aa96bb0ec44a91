/* state_checksum FILE: writes the right checksum of state.json into an edited state.json, so that a test can change a value
 * that training reads. The rule is that of src/checkpoint/state.c, written down here a second time: XXH64 of the file with
 * zeros in place of its own 16 digits. */
#define _GNU_SOURCE
#include "base/files/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char key[] = "\"state.json\": \"";
    static char text[1 << 20];
    char digits[17];
    FILE *file = argc == 2 ? fopen(argv[1], "r+") : NULL;
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    char *at = memmem(text, size, key, strlen(key));
    if (!at || at + strlen(key) + 16 > text + size) {
        fprintf(stderr, "state_checksum: FILE must be a state.json with a checksum of its own\n");
        return 1;
    }
    at += strlen(key);
    memset(at, '0', 16);
    snprintf(digits, sizeof digits, "%016" PRIx64, ls_checksum_of(text, size));
    memcpy(at, digits, 16);
    rewind(file);
    return fwrite(text, 1, size, file) == size && fclose(file) == 0 ? 0 : 1;
}
