// Measured times of ops on a real device, so that plans may minimise seconds.
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
  ~OpTimes();  // writes new times to the cache
  OpTimes(const OpTimes&) = delete;
  OpTimes& operator=(const OpTimes&) = delete;

  // Returns the seconds that the record's op takes forward, 0 if it does nothing. Empty if it
  // cannot be measured: it has no inputs, or the device has too little memory.
  std::optional<double> seconds(const Record& record);

 private:
  std::shared_ptr<Device> device_;
  std::string file_;                     // the file of the cache
  std::map<std::string, double> known_;  // by op, shapes and work; negative: cannot be measured
  bool is_new_ = false;
};

}  // namespace rw
