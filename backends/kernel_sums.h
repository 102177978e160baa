// The output of REWIND_PROFILE=1 when a backend is closed: the time of each kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace rw {

class KernelSums {
 public:
  void add(const std::string& kernel, double microseconds);
  // One line for each kernel, the largest sum first.
  std::string text() const;

 private:
  struct Sum {
    uint64_t count = 0;
    double microseconds = 0;
  };
  std::map<std::string, Sum> sums_;
};

}  // namespace rw
