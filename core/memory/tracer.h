// Writes a MemoryTrace while a device works.
#pragma once

#include <chrono>
#include <unordered_map>

#include "memory_trace.h"

namespace rw {

class Storage;

class Tracer {
 public:
  Tracer() { trace_.tensors.reserve(1024); }

  void existed(const Storage& storage) { add(storage, 0); }
  void allocated(const Storage& storage) { add(storage, ++clock_); }
  void freed(const Storage& storage);
  void changed(const Storage& storage);  // changed its purpose
  void moved(const Storage& storage);    // may have moved
  void called(const KernelCall& call);
  void step_ended() { trace_.steps.push_back(++clock_); }
  MemoryTrace finish();

 private:
  void add(const Storage& storage, uint64_t time);

  MemoryTrace trace_;
  uint64_t clock_ = 0;
  std::unordered_map<uint64_t, size_t> live_;  // storage id -> place in tensors
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace rw
