// The number of threads of the cpu backend.
#pragma once

#include "../../../backends/cpu/cpu_backend.h"

namespace rw::test {

// Sets the number of threads for a scope.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(cpu::threads()) { cpu::set_threads(count); }
  ~ThreadCount() { cpu::set_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace rw::test
