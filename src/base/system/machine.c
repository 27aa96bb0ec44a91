#include "base/system/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

bool ls_machine_value(const char *path, const char *key, char *value, size_t room)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(value, room, "%s", colon + 1 + strspn(colon + 1, " \t"));
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

void ls_machine_processor(char *text, size_t room)
{
    struct utsname system;
    if (!ls_machine_value("/proc/cpuinfo", "model name", text, room))
        snprintf(text, room, "%s", uname(&system) == 0 ? system.machine : "unknown");
}
