// Random programs: graphs of many ops, with branches, views, in-place ops, random numbers and
// dtypes.
#pragma once

#include <random>

#include "tests/tape_fixture.h"

namespace rw::test {

inline constexpr int64_t side = 6;

// A program of random ops over a few [side, side] values; equal seeds give equal programs.
class Program {
 public:
  // `left_out`: a segment that is not made, by number.
  Program(uint32_t seed, bool segments, const std::vector<Tensor>& leaves, int left_out = -1)
      : random_(seed), segments_(segments), left_out_(left_out), leaves_(leaves), values_(leaves) {}

  // A loss of all values, and one of the first value only.
  std::pair<Tensor, Tensor> run() {
    block(0);
    Tensor total = values_[0] * 1.0f;
    for (size_t i = 1; i < values_.size(); ++i) total = std::move(total) + values_[i];
    return {mean(square(total)), mean(sin(values_[0]))};
  }

 private:
  size_t pick(size_t n) { return random_() % n; }
  const Tensor& value() { return values_[pick(values_.size())]; }

  void block(int depth) {
    for (size_t steps = 2 + pick(5); steps > 0; --steps) {
      if (depth < 4 && pick(3) == 0) {
        const CheckpointScope scope(segments_ && next_segment_++ != left_out_);
        block(depth + 1);
      } else {
        Tensor result = step();
        values_[pick(values_.size())] = std::move(result);
      }
    }
  }

  // Bounded results, so that long programs stay finite.
  Tensor step() {
    const Tensor& w = leaves_[pick(leaves_.size())];
    switch (pick(12)) {
      case 0:
        return tanh(value() * w);
      case 1:
        return sin(value() + value());
      case 2:
        return transpose(value(), 0, 1);
      case 3:
        return tanh(matmul(value(), w));
      case 4:
        return softmax(value());
      case 5:
        return dropout(value(), 0.2f);
      case 6:
        return batch_norm(value(), select(w, 0, 1), select(w, 0, 2)).y;
      case 7:
        return reshape(concat({slice(value(), 0, 0, 2), slice(value(), 0, 2, side)}, 0),
                       {side, side});
      case 8: {
        Tensor t = value() + 0.1f;
        return relu(std::move(t));
      }
      case 9:
        return cast(sigmoid(cast(value(), DType::f16)), DType::f32);
      case 10:
        return maximum(value(), randn({side, side}));
      default:
        return value() - mean(value(), {1}, true);
    }
  }

  std::mt19937 random_;
  bool segments_;
  int left_out_, next_segment_ = 0;
  std::vector<Tensor> leaves_, values_;
};

// Parameters for such programs.
inline std::vector<Tensor> program_leaves() {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> values = leaf(side * side + i).to_vector();
    leaves.push_back(
        tensor(std::span(values).first(side * side), {side, side}).set_requires_grad());
  }
  return leaves;
}

}  // namespace rw::test
