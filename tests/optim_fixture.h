// Optimizer tests: small parameters whose gradients are chosen by the test.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "../backends/open.h"
#include "../core/ops/operators.h"
#include "../core/ops/ops.h"
#include "../core/tensor/primitives.h"
#include "../optim/optimizer.h"

namespace rw::test {

using Values = std::vector<float>;

// Runs `body` with each backend of this machine as the default device.
inline void on_each_device(const std::function<void()>& body) {
  for (const std::string device : {"cpu", "vulkan"}) {
    std::unique_ptr<Backend> backend;
    try {
      backend = open_backend(device);
    } catch (const DeviceError&) {
      continue;
    }
    INFO("device: ", device);
    set_default_device(std::move(backend));
    body();
  }
}

inline Tensor parameter(const Values& values, const std::string& name = "") {
  Tensor w = tensor(values, {static_cast<int64_t>(values.size())});
  w.set_requires_grad();
  w.impl().name = name;
  return w;
}

// A loss whose gradient is `gradient`.
inline Tensor loss_with(const Tensor& w, const Values& gradient) {
  return sum(w * tensor(gradient, w.shape()));
}

// A state that no longer follows its optimizer.
inline Optimizer::NamedState copied(const Optimizer::NamedState& state) {
  Optimizer::NamedState all;
  for (const auto& [name, t] : state) all.emplace_back(name, copy_of(t, t.dtype()));
  return all;
}

// `n` values between -1 and 1, other ones for every seed.
inline Values some_values(int n, int seed = 0) {
  Values values;
  for (int i = 0; i < n; ++i)
    values.push_back(static_cast<float>((i * 37 + seed * 53) % 101) / 50 - 1);
  return values;
}

inline double largest_difference(const Values& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace rw::test
