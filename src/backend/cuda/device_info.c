/* What `lockstep doctor` reports about GPUs, without opening one. */
#include "backend/cuda/device.h"

#include <stdio.h>

const char *device_why(cudaError_t error)
{
    int driver = 0;
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return "there is none";
    if (error == cudaErrorInsufficientDriver && (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0))
        return "NVIDIA's driver is not installed";
    return cudaGetErrorString(error);
}

/* What computes: cuDNN, and the CUDA that this was built with. */
static void name_library(struct ls_backend_about *about)
{
    size_t dnn = cudnnGetVersion();
    snprintf(about->library, sizeof about->library, "cuDNN %zu.%zu.%zu, CUDA %d.%d", dnn / 10000, dnn / 100 % 100,
             dnn % 100, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

void ls_cuda_about(struct ls_backend_about *about)
{
    struct cudaDeviceProp prop;
    int count = 0, driver = 0;
    *about = (struct ls_backend_about){.caution = ""};
    name_library(about);
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
        cudaGetDeviceProperties(&prop, device_rank() % count) != cudaSuccess) {
        cudaGetLastError();
        snprintf(about->isa, sizeof about->isa, "no card");
        snprintf(about->caution, sizeof about->caution, "no GPU can be used here; see nvidia-smi");
        return;
    }
    snprintf(about->isa, sizeof about->isa, "%.23s", prop.name);
    if (cudaDeviceGetPCIBusId(about->bus, sizeof about->bus, device_rank() % count) != cudaSuccess)
        about->bus[0] = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver < CUDART_VERSION)
        snprintf(about->caution, sizeof about->caution, "the driver is for CUDA %d.%d, older than the %d.%d built with",
                 driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

/* What is free is not asked for: that would open the card. */
static void describe_card(int number, struct ls_backend_card *card)
{
    struct cudaDeviceProp prop;
    *card = (struct ls_backend_card){.name = ""};
    if (cudaGetDeviceProperties(&prop, number) != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    snprintf(card->name, sizeof card->name, "%.95s", prop.name);
    if (cudaDeviceGetPCIBusId(card->bus, sizeof card->bus, number) != cudaSuccess)
        card->bus[0] = 0;
    card->major = prop.major;
    card->minor = prop.minor;
    card->multiprocessors = prop.multiProcessorCount;
    card->memory = (int64_t)prop.totalGlobalMem;
}

int ls_cuda_cards(struct ls_backend_card *list, int room, char *why, size_t room_why)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    snprintf(why, room_why, "%s", device_why(error));
    if (error != cudaSuccess || count == 0) {
        cudaGetLastError();
        return 0;
    }
    for (int i = 0; i < count && i < room; i++) {
        describe_card(i, &list[i]);
        list[i].mine = i == device_rank() % count;
    }
    return count < room ? count : room;
}
