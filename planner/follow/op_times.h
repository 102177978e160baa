// The times of ops on a device at hand, so that plans may minimise seconds.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "../../core/autograd/record.h"
#include "../../core/memory/device.h"

namespace rw {

// Measures ops once each, on zeros of the shapes in a record: it needs only a dry pass of a
// program, and no more memory than one op takes. Known times are kept in the user's cache, by
// device and driver. Only one thread may use it.
class OpTimes {
 public:
  // The device must compute (not be dry).
  explicit OpTimes(std::shared_ptr<Device> device);
  ~OpTimes();  // writes what is new
  OpTimes(const OpTimes&) = delete;
  OpTimes& operator=(const OpTimes&) = delete;

  // The seconds to run the record's op forward, 0 if it does nothing. Empty if it cannot be
  // measured: without inputs, or if the device has too little memory.
  std::optional<double> seconds(const Record& record);

 private:
  std::shared_ptr<Device> device_;
  std::string file_;                     // of the cache
  std::map<std::string, double> known_;  // by op, shapes and work; negative: not to be measured
  bool is_new_ = false;
};

}  // namespace rw
