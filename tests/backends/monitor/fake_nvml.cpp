// A libnvidia-ml.so.1 of one device, for tests. It has all functions for which Nvml asks except
// one.
#include <cstring>

namespace {

constexpr int kSuccess = 0, kNotFound = 6, kNotSupported = 3;
int the_device = 0;

struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct Sample {
  unsigned pid;
  unsigned long long time;
  unsigned gpu, memory, encoder, decoder;
};

int answer(void* device, unsigned* value, unsigned with) {
  if (device != &the_device) return kNotFound;
  *value = with;
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return kSuccess;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  if (std::strcmp(address, "0000:01:00.0") != 0) return kNotFound;
  *device = &the_device;
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(void* device, unsigned* gpu_and_memory) {
  gpu_and_memory[1] = 20;
  return answer(device, gpu_and_memory, 93);
}

int nvmlDeviceGetClockInfo(void* device, unsigned type, unsigned* mhz) {
  return type == 1 ? answer(device, mhz, 1980) : kNotSupported;
}

int nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? answer(device, celsius, 61) : kNotSupported;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return answer(device, milliwatts, 412500);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  processes[0] = {10, 5 << 20, 0, 0};
  return answer(device, count, 1);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  processes[0] = {10, 5 << 20, 0, 0};
  processes[1] = {11, ~0ull, 0, 0};
  return answer(device, count, 2);
}

int nvmlDeviceGetProcessUtilization(void* device, Sample* samples, unsigned* count,
                                    unsigned long long since) {
  if (since != 0) return kNotFound;
  samples[0] = {10, 200, 70, 1, 0, 0};
  samples[1] = {10, 100, 30, 1, 0, 0};
  samples[2] = {99, 300, 50, 1, 0, 0};
  return answer(device, count, 3);
}
}
