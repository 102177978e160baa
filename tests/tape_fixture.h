// A fresh cpu device per test; afterwards nothing may be left in it or on the tape.
#pragma once

#include <doctest/doctest.h>

#include "../backends/open.h"
#include "../core/autograd/checkpoint.h"
#include "../core/ops/autocast.h"
#include "../core/ops/operators.h"
#include "../core/ops/ops.h"
#include "../core/ops/print.h"
#include "message_of.h"

namespace rw::test {

struct CpuDevice {
  std::shared_ptr<Device> device = set_default_device(open_backend("cpu"));
  ~CpuDevice() {
    CHECK(live() == 0);
    CHECK(tape().stats().records == 0);
    CHECK(tape().stats().segments == 0);
  }
  uint64_t live() const { return device->memory_report().live; }
  static Tape& tape() { return *Tape::current(); }
};

// A parameter of `n` floats from -1 to 1.
inline Tensor leaf(int64_t n, const std::string& name = "") {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>((i * 37 + n) % 101) / 50 - 1);
  Tensor t = tensor(values, {n});
  t.impl().name = name;
  return t.set_requires_grad();
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace rw::test
