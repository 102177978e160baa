// Rows of tests/goldens/*.inc: what PyTorch computed of one tensor.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "../nn/module.h"
#include "hashed.h"

namespace rw::test {

// Its 2-norm, and elements at equal distances.
struct GoldenRow {
  std::string name;
  int64_t size;
  double norm;
  std::vector<double> samples;
};

// The larger of two errors: of the norm, and of the worst sample relative to the root mean square
// of all elements. The gradient of a key's bias is zero, softmax does not see it: hence the floor.
inline double row_error(const Tensor& got, const GoldenRow& row) {
  REQUIRE(got.numel() == row.size);
  const std::vector<float> values = got.to_vector();
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * v;
  const double root = std::sqrt(static_cast<double>(row.size));
  const double scale = std::max(row.norm / root, 5e-3);
  double worst = std::abs(std::sqrt(squares) - row.norm) / root / scale;
  for (size_t i = 0; i < row.samples.size(); ++i) {
    const double error = values[i * values.size() / row.samples.size()] - row.samples[i];
    worst = std::max(worst, std::abs(error) / std::max(scale, std::abs(row.samples[i])));
  }
  return worst;
}

inline void check_row(const Tensor& got, const GoldenRow& row, double tolerance) {
  const double error = row_error(got, row);
  CHECK_MESSAGE(error <= tolerance, row.name << " differs by " << error);
}

// The rows' names are those of parameters, each of which has one.
inline void check_gradients(const Module& module, const std::vector<GoldenRow>& rows, float scale,
                            double tolerance) {
  std::map<std::string, Tensor> parameters;
  for (const NamedTensor& p : module.named_parameters()) parameters[p.name] = p.tensor;
  CHECK(parameters.size() == rows.size());
  for (const GoldenRow& row : rows) {
    INFO(row.name);
    REQUIRE(parameters.contains(row.name));
    std::vector<float> values = parameters[row.name].grad().to_vector();
    for (float& v : values) v /= scale;
    check_row(tensor(values, parameters[row.name].shape()), row, tolerance);
  }
}

// Parameters as the scripts make them: a quarter of the hash of their name, and around 1 where
// `is_centered` says so.
template <class F>
void fill_from_hash(const Module& module, const F& is_centered) {
  for (const auto& [name, parameter] : module.named_parameters()) {
    std::vector<float> values = hashed(name, parameter.numel());
    const float center = is_centered(name, parameter) ? 1 : 0;
    for (float& v : values) v = center + 0.25f * v;
    parameter.detach().copy_(tensor(values, parameter.shape()));
  }
}

// The weights of norms.
inline bool is_norm_weight(const std::string& name, const Tensor& parameter) {
  return parameter.rank() == 1 && name.ends_with("weight");
}

}  // namespace rw::test
