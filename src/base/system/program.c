#define _GNU_SOURCE
#include "base/system/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *ls_program_path(char *room, size_t size)
{
    static const char self[] = "/proc/self/exe";
    ssize_t n = readlink(self, room, size - 1);
    if (n <= 0)
        return NULL;
    room[n] = 0;
    return access(room, X_OK) == 0 ? room : self;
}

double ls_program_age(void)
{
    struct timespec now;
    char line[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file)
        return 0;
    line[fread(line, 1, sizeof line - 1, file)] = 0;
    fclose(file);
    /* Field 22, in ticks since the machine started. The first field after the name in brackets is field 3. */
    const char *field = strrchr(line, ')');
    for (int i = 0; field && i < 20; i++)
        field = strchr(field + 1, ' ');
    if (!field)
        return 0;
    clock_gettime(CLOCK_BOOTTIME, &now);
    double start = (double)strtoull(field, NULL, 10) / (double)sysconf(_SC_CLK_TCK);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - start;
}
