/* Stands in for a GPU's driver: knows what Triton asks of one, and keeps the arguments of the last launch. */
#include "cuda.h"
#include <string.h>

#define MOST_ARGUMENTS 256
#define CONTEXT ((CUcontext)1)
#define HOPPER_SHARED_BYTES (227 * 1024)

static int argument_count, argument_sizes[MOST_ARGUMENTS];

/* Of the last launch: arguments in little-endian, one after the other, each in eight bytes. */
unsigned long long launched_arguments[MOST_ARGUMENTS];
unsigned int launched_grid[3];
unsigned int launched_threads;
int launches;

void expect_arguments(int count, const int *sizes) {
    argument_count = count;
    memcpy(argument_sizes, sizes, count * sizeof(int));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
    launched_grid[0] = config->gridDimX;
    launched_grid[1] = config->gridDimY;
    launched_grid[2] = config->gridDimZ;
    launched_threads = config->blockDimX;
    memset(launched_arguments, 0, sizeof launched_arguments);
    for (int place = 0; place < argument_count; place++)
        memcpy(&launched_arguments[place], arguments[place], argument_sizes[place]);
    launches++;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? HOPPER_SHARED_BYTES : 65536;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

/* A pointer of main memory is as good as one of the device. */
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    *(CUdeviceptr *)value = pointer;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) { *context = CONTEXT; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 0; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = CONTEXT; return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "an error"; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = (CUfunction)1;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = (CUmodule)1; return CUDA_SUCCESS; }
