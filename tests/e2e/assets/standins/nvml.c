/* Stand-in for NVIDIA's NVML, libnvidia-ml.so.1: as many equal GPUs as a file says.

The file has one KEY=VALUE a line, and is read at each call, so that a driver can be replaced while programs run.
Without it, no driver is loaded. node.py adds the other functions of nvml.h; they are not supported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS "/run/nvidia/driver/gpus"
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

typedef void *Device; /* 1 + its index */
typedef struct {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
} Pci;

/* Copy the value of a key to `to`, which is empty if there is none. Return whether the file exists. */
static int read_setting(const char *key, char *to, size_t size) {
  char line[256];
  size_t length = strlen(key);
  FILE *file = fopen(SETTINGS, "re");
  *to = 0;
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, key, length) && line[length] == '=') snprintf(to, size, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
  fclose(file);
  return 1;
}

static long number(const char *key) {
  char value[256];
  read_setting(key, value, sizeof value);
  return strtol(value, 0, 0);
}

static int text(const char *key, char *to, unsigned size) {
  read_setting(key, to, size);
  return SUCCESS;
}

static unsigned index_of(Device device) { return (unsigned)(long)device - 1; }

static int device_at(unsigned index, Device *device) {
  if (index >= number("gpus")) return INVALID_ARGUMENT;
  *device = (Device)(long)(index + 1);
  return SUCCESS;
}

int nvmlInit_v2(void) {
  char value[256];
  return read_setting("init", value, sizeof value) ? atoi(value) : DRIVER_NOT_LOADED;
}
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) {
  switch (result) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_FOUND: return "Not Found";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 18: return "Driver/library version mismatch";
  }
  return "Not Supported";
}
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text("driver", to, size); }
int nvmlSystemGetCudaDriverVersion(int *version) { return *version = number("cuda"), SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = number("gpus"), SUCCESS; }
int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) { return device_at(index, device); }
int nvmlDeviceGetHandleByIndex(unsigned index, Device *device) { return device_at(index, device); }
int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
  char own[80];
  for (unsigned index = 0; device_at(index, device) == SUCCESS; index++) {
    snprintf(own, sizeof own, "GPU-00000000-0000-0000-0000-%012x", index);
    if (!strcmp(own, uuid)) return SUCCESS;
  }
  return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *device) {
  unsigned domain, bus;
  return sscanf(id, "%x:%x", &domain, &bus) == 2 && bus ? device_at(bus - 1, device) : NOT_FOUND;
}
int nvmlDeviceGetName(Device device, char *to, unsigned size) { return text("name", to, size); }
int nvmlDeviceGetUUID(Device device, char *to, unsigned size) {
  snprintf(to, size, "GPU-00000000-0000-0000-0000-%012x", index_of(device));
  return SUCCESS;
}
int nvmlDeviceGetIndex(Device device, unsigned *index) { return *index = index_of(device), SUCCESS; }
int nvmlDeviceGetMinorNumber(Device device, unsigned *minor) { return *minor = index_of(device), SUCCESS; }
int nvmlDeviceGetBrand(Device device, int *brand) { return *brand = number("brand"), SUCCESS; }
int nvmlDeviceGetArchitecture(Device device, unsigned *value) { return *value = number("architecture"), SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
  return *major = number("capability") / 10, *minor = number("capability") % 10, SUCCESS;
}
int nvmlDeviceGetMemoryInfo(Device device, unsigned long long bytes[3]) { /* total, free, used */
  return bytes[0] = bytes[1] = (unsigned long long)number("mib") << 20, bytes[2] = 0, SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci) {
  memset(pci, 0, sizeof *pci);
  pci->bus = index_of(device) + 1;
  pci->device_id = number("pci");
  snprintf(pci->legacy_id, sizeof pci->legacy_id, "0000:%02X:00.0", pci->bus);
  snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
  return SUCCESS;
}
int nvmlDeviceGetPciInfo_v2(Device device, Pci *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
int nvmlDeviceGetPciInfo(Device device, Pci *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) { return *count = 0, SUCCESS; }
int nvmlDeviceIsMigDeviceHandle(Device device, unsigned *is) { return *is = 0, SUCCESS; }
int nvmlDeviceGetComputeMode(Device device, int *mode) { return *mode = 0, SUCCESS; }
int nvmlDeviceGetP2PStatus(Device one, Device other, int kind, int *status) { return *status = 0, SUCCESS; }
