/* A libnvidia-ml of two GPUs, for machines without any: what pynvml calls, with NVML's signatures.
   The file that FAKE_NVML names is read at every question: "ok"; "lost": GPU 1 has fallen off the
   bus; "hang": no question is answered any more; "none": there is no driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Status;
typedef struct { int index; } Gpu;
enum { kSuccess = 0, kNotSupported = 3, kDriverNotLoaded = 9, kGpuIsLost = 15 };

static Gpu gpus[2] = {{0}, {1}};

static Status state(const Gpu* gpu) {
  char word[16] = "";
  const char* path = getenv("FAKE_NVML");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  if (file != NULL) {
    if (fgets(word, sizeof word, file) == NULL) word[0] = 0;
    fclose(file);
  }
  if (strncmp(word, "hang", 4) == 0) {
    for (;;) pause();
  }
  if (strncmp(word, "none", 4) == 0) return kDriverNotLoaded;
  if (gpu != NULL && gpu->index == 1 && strncmp(word, "lost", 4) == 0) return kGpuIsLost;
  return kSuccess;
}

static Status number(const Gpu* gpu, unsigned* out, unsigned value) {
  *out = value;
  return state(gpu);
}

static Status text(const Gpu* gpu, char* out, unsigned size, const char* form) {
  snprintf(out, size, form, gpu->index);
  return state(gpu);
}

Status nvmlInitWithFlags(unsigned flags) { (void)flags; return state(NULL); }
Status nvmlDeviceGetCount_v2(unsigned* n) { return number(NULL, n, 2); }
Status nvmlDeviceGetHandleByIndex_v2(unsigned i, Gpu** gpu) { *gpu = &gpus[i]; return kSuccess; }
Status nvmlDeviceGetName(Gpu* gpu, char* out, unsigned size) {
  return text(gpu, out, size, "Fake GPU %d");
}
Status nvmlDeviceGetUUID(Gpu* gpu, char* out, unsigned size) {
  return text(gpu, out, size, "GPU-0000000%d");
}
typedef struct { unsigned long long total, free, used; } Memory;
Status nvmlDeviceGetMemoryInfo(Gpu* gpu, Memory* memory) {
  *memory = (Memory){80000, 60000, 20000};
  return state(gpu);
}
typedef struct { unsigned gpu, memory; } Rates;
Status nvmlDeviceGetUtilizationRates(Gpu* gpu, Rates* rates) {
  *rates = (Rates){75, 30};
  return state(gpu);
}
Status nvmlDeviceGetPowerUsage(Gpu* gpu, unsigned* mw) { return number(gpu, mw, 123500); }
Status nvmlDeviceGetEnforcedPowerLimit(Gpu* gpu, unsigned* mw) { return number(gpu, mw, 700000); }
Status nvmlDeviceGetTotalEnergyConsumption(Gpu* gpu, unsigned long long* mj) {
  *mj = 5000;
  return state(gpu);
}
Status nvmlDeviceGetTemperature(Gpu* gpu, int sensor, unsigned* celsius) {
  (void)sensor;
  return number(gpu, celsius, 41);
}
Status nvmlDeviceGetClockInfo(Gpu* gpu, int kind, unsigned* mhz) {
  if (kind == 2) return kNotSupported; /* the memory's */
  return number(gpu, mhz, 1980);
}
