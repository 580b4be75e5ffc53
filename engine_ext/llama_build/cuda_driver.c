// The functions of the driver's own interface that ggml-cuda calls, each looked up when it is called. Linked to
// libcuda.so.1, libggml-cuda could not even be loaded on a machine without a driver, and -ngl 0 needs none there.
// Hidden: nobody else may take these for the driver's.
#include <cuda.h>
#include <dlfcn.h>

static void* find(const char* name) {
  // The same handle each time, as long as the process lives.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver ? dlsym(driver, name) : NULL;
}

#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)  // cuda.h renames some: the library has the new name
#define FORWARD(name, parameters, arguments)                                   \
  __attribute__((visibility("hidden"))) CUresult CUDAAPI name parameters {     \
    __typeof__(&name) forward = (__typeof__(&name))find(SYMBOL(name));         \
    return forward ? forward arguments : CUDA_ERROR_NOT_INITIALIZED;           \
  }

FORWARD(cuDeviceGet, (CUdevice * device, int index), (device, index))
FORWARD(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device),
        (value, attribute, device))
FORWARD(cuGetErrorString, (CUresult error, const char** text), (error, text))
FORWARD(cuMemAddressFree, (CUdeviceptr address, size_t size), (address, size))
FORWARD(cuMemAddressReserve,
        (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags),
        (address, size, alignment, wish, flags))
FORWARD(cuMemCreate,
        (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp* properties,
         unsigned long long flags),
        (handle, size, properties, flags))
FORWARD(cuMemGetAllocationGranularity,
        (size_t * size, const CUmemAllocationProp* properties, CUmemAllocationGranularity_flags option),
        (size, properties, option))
FORWARD(cuMemMap,
        (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (address, size, offset, handle, flags))
FORWARD(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
FORWARD(cuMemSetAccess, (CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t count),
        (address, size, access, count))
FORWARD(cuMemUnmap, (CUdeviceptr address, size_t size), (address, size))
