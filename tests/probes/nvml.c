/* libnvidia-ml.so.1 for tests: one card, at 0000:01:00.0, that gets busier with each question and cannot tell its
 * temperature. The figures are plain functions of how often they were asked for. */
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *version, unsigned room);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **card);
int nvmlDeviceGetUtilizationRates(void *card, unsigned *rates);
int nvmlDeviceGetMemoryInfo(void *card, unsigned long long *memory);
int nvmlDeviceGetPowerUsage(void *card, unsigned *milliwatts);
int nvmlDeviceGetClockInfo(void *card, int which, unsigned *mhz);
int nvmlDeviceGetTemperature(void *card, int which, unsigned *degrees);

static int initialised, card_itself;
static unsigned asked;

static int known(const void *card)
{
    return initialised && card == &card_itself ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlInit_v2(void)
{
    initialised = 1;
    asked = 0;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    initialised = 0;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned room)
{
    if (room < 10)
        return INVALID_ARGUMENT;
    memcpy(version, "999.01.02", 10);
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **card)
{
    if (!initialised || strcmp(bus, "0000:01:00.0") != 0)
        return INVALID_ARGUMENT;
    *card = &card_itself;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *card, unsigned *rates)
{
    asked++;
    rates[0] = asked < 50 ? 2 * asked : 100;
    rates[1] = 1;
    return known(card);
}

int nvmlDeviceGetMemoryInfo(void *card, unsigned long long *memory)
{
    memory[0] = 80ull << 30;
    memory[2] = 10ull << 30;
    memory[1] = memory[0] - memory[2];
    return known(card);
}

int nvmlDeviceGetPowerUsage(void *card, unsigned *milliwatts)
{
    *milliwatts = 412000;
    return known(card);
}

int nvmlDeviceGetClockInfo(void *card, int which, unsigned *mhz)
{
    *mhz = which == 1 ? 1755 : 1;
    return known(card);
}

int nvmlDeviceGetTemperature(void *card, int which, unsigned *degrees)
{
    (void)card, (void)which, (void)degrees;
    return NOT_SUPPORTED;
}
