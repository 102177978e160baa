// How long ops take on a device at hand, so that plans may minimise seconds.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "../../core/autograd/record.h"
#include "../../core/memory/device.h"

namespace rw {

// Measures ops once each, on zeros of the shapes that a record has: a dry pass of a program is
// enough, and no more memory than one op takes. Known times are kept in the user's cache, by device
// and driver. One thread uses it.
class OpTimes {
 public:
  // The device computes (is not dry).
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
