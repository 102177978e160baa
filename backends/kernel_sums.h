// The output of REWIND_PROFILE=1 when a backend is closed: the time of each kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace rw {

class KernelSums {
 public:
  void add(const std::string& kernel, double microseconds);
  // One line for each kernel, the largest sum first.
  std::string text() const;

 private:
  std::map<std::string, std::pair<uint64_t, double>> sums_;  // calls, microseconds
};

}  // namespace rw
