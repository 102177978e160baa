// The time of an update, from its work.
#pragma once

#include <filesystem>
#include <memory>

#include "../../core/memory/device.h"

namespace rw {

// How fast a device works. What nobody measured is as OpCost assumes it.
struct DeviceSpeed {
  double flops = OpCost::flops_per_second;       // of products, per second
  double bytes = OpCost::flops_per_second / 20;  // that kernels read and write, per second
  double kernel = 5e-6;                          // seconds that a kernel takes at least
  HostBandwidth host = {};                       // of copies to host memory and back, and updates
  double file = 1e9;                             // bytes that a file gives, per second
  bool is_measured = false;                      // by measure_speed()

  // The seconds of an update that reads so many bytes of weights from files. Copies, reads and what
  // the host computes hide behind kernels of the same pass, or kernels behind them, whichever take
  // longest.
  double seconds(const WorkByPhase& work, uint64_t from_files = 0) const;
};

// Returns the speed of a device that nothing was measured on.
DeviceSpeed assumed_speed(const DeviceInfo& info);
// Measures a product of `dtype` and a pass over memory, in about a tenth of a second. The device
// must compute (not be dry).
DeviceSpeed measure_speed(const std::shared_ptr<Device>& device, DType dtype);
// Measures the bytes per second that a file gives, or the largest one in a folder, by a part of it
// that the system is asked to forget first. FileError.
double measure_file_speed(const std::filesystem::path& path);

}  // namespace rw
