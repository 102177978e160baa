// Tests of Accumulate: random models, windows and weights, and all optimizers.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "../data/random.h"
#include "../optim/accumulate.h"
#include "optim_fixture.h"

namespace rw::test {

// From `low` to `high`.
inline int64_t between(DataRandom& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random.below(static_cast<uint64_t>(high - low + 1)));
}

// An optimizer by name: plain, and with windows of n.
struct OptimizerMaker {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)> plain;
  std::function<std::unique_ptr<Accumulate>(std::vector<ParameterGroup>, uint32_t)> accumulating;
  // Its updates follow the gradient without steps: no signs, no division by what may be noise.
  bool is_smooth = true;
};
const std::vector<OptimizerMaker>& optimizer_makers();

// A small random network with samples, the same for equal seeds. Some share a weight between
// layers, some have a parameter that no loss reads.
struct RandomProblem {
  explicit RandomProblem(uint64_t seed);

  // The mean over samples [begin, end).
  Tensor loss(int64_t begin, int64_t end) const;
  std::vector<ParameterGroup> groups() const;  // one, or two with other rates and decays
  Values values() const;                       // of all parameters
  std::string str() const;

  static constexpr int64_t samples = 48;
  std::vector<Tensor> parameters;

 private:
  struct Layer {
    size_t weight, bias, norm;  // among the parameters; norm 0: none
    int activation;
  };
  size_t add(DataRandom& random, const Shape& shape, float scale);
  void add_layer(DataRandom& random, int64_t in, int64_t out);

  uint64_t seed_;
  std::vector<Layer> layers_;
  Tensor x_, y_;
  std::optional<size_t> rare_;  // a parameter that only some samples read
  bool has_unused_ = false, has_groups_ = false;
};

// A window: so many samples in each micro-batch.
struct Window {
  std::vector<int64_t> sizes;

  // Of `total` samples in `count` micro-batches.
  static Window random(DataRandom& random, int64_t total, int64_t count);
  // Of sizes whose first and whose sum are powers of two, so that weighing by them changes no bit.
  static Window exact(DataRandom& random, int64_t count);
  uint32_t count() const { return static_cast<uint32_t>(sizes.size()); }
  int64_t total() const;
};

// |a - b| / |b| over all elements.
double relative_distance(const Values& a, const Values& b);

}  // namespace rw::test
