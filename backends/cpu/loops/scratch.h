// Host memory for the time of a loop, for partial results, which are few.
#pragma once

#include <cstddef>
#include <cstdlib>

#include "level.h"

namespace rw::cpu::REWIND_LEVEL {

class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(bytes > 0 ? std::malloc(bytes) : nullptr) {}
  ~Scratch() { std::free(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  explicit operator bool() const { return memory_ != nullptr; }  // false: there is no memory
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_;
};

}  // namespace rw::cpu::REWIND_LEVEL
