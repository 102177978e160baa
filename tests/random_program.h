// Random programs: graphs of many ops, with branches, views, in-place ops, random numbers, dtypes,
// values that are detached, and several handles on one value.
#pragma once

#include <random>

#include "../core/tensor/primitives.h"
#include "tape_fixture.h"

namespace rw::test {

inline constexpr int64_t side = 6;

// A program of random ops over a few [side, side] values; equal seeds give equal programs.
class Program {
 public:
  // `leaves`: of program_leaves(). `left_out`: a segment that is not made, by number.
  Program(uint32_t seed, bool segments, const std::vector<Tensor>& leaves, int left_out = -1)
      : random_(seed),
        segments_(segments),
        left_out_(left_out),
        leaves_(leaves.begin(), leaves.end() - 1),
        buffer_(leaves.back()),
        values_(leaves_) {}

  // Values that are replaced count in the loss as well: nothing of the program is dropped.
  Program& keep_all() {
    rest_ = zeros({});
    return *this;
  }

  // Without values that are detached: ops make others of them that no tape knows of.
  Program& stay_on_tape() {
    is_on_tape_ = true;
    return *this;
  }

  // A loss of all values, and one of the first value only.
  std::pair<Tensor, Tensor> run() {
    block(0);
    Tensor total = values_[0] * 1.0f;
    for (size_t i = 1; i < values_.size(); ++i) total = std::move(total) + values_[i];
    Tensor loss = mean(square(total));
    if (rest_) loss = std::move(loss) + rest_;
    return {std::move(loss), mean(sin(values_[0]))};
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
        Tensor& value = values_[pick(values_.size())];
        if (rest_) rest_ = std::move(rest_) + mean(value);
        value = std::move(result);
      }
    }
  }

  // Bounded results, so that long programs stay finite.
  Tensor step() {
    const Tensor& w = leaves_[pick(leaves_.size())];
    constexpr size_t kinds = 20, kinds_on_tape = 14;
    size_t kind = pick(is_on_tape_ ? kinds_on_tape : kinds);
    if (is_on_tape_ && kind == kinds_on_tape - 1) kind = kinds - 1;
    switch (kind) {
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
      case 11: {
        Tensor t = value() * 0.5f;
        t += w;
        t *= 0.9f;
        return tanh(std::move(t));
      }
      case 12:  // another handle, for a while
        handles_.push_back(value());
        if (handles_.size() > 2) handles_.erase(handles_.begin());
        return relu(handles_[pick(handles_.size())] - 0.1f);
      case 13: {
        const Tensor y = value();
        return sigmoid(y.detach()) * tanh(y.detach() + w);
      }
      case 14: {  // straight through: the gradient passes where the function has none
        const Tensor y = value();
        return tanh(y + (round(y * 4.0f) * 0.25f - y).detach());
      }
      case 15:
        return value() * sigmoid(w.detach());
      case 16: {
        const Tensor y = value();
        return concat({y.detach()[{Slice{0, 2}}], transpose(y, 0, 1)[{Slice{2, side}}]}, 0);
      }
      case 17: {  // only what was detached of the first value is left of it
        Tensor d;
        {
          const Tensor y = sin(value() * w);
          d = y.detach();
        }
        Tensor sum = value() + w;
        return std::move(sum) + cos(std::move(d));
      }
      case 18: {  // as running statistics
        const Tensor y = value();
        buffer_.copy_(y.detach());
        return y + copy_of(buffer_, DType::f32);
      }
      default:
        return value() - mean(value(), {1}, true);
    }
  }

  std::mt19937 random_;
  bool segments_;
  int left_out_, next_segment_ = 0;
  std::vector<Tensor> leaves_;
  Tensor buffer_;
  std::vector<Tensor> values_, handles_;
  Tensor rest_;
  bool is_on_tape_ = false;
};

// Parameters for such programs, and at the end a buffer that they write.
inline std::vector<Tensor> program_leaves() {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> values = leaf(side * side + i).to_vector();
    leaves.push_back(
        tensor(std::span(values).first(side * side), {side, side}).set_requires_grad());
  }
  leaves.push_back(zeros({side, side}));
  return leaves;
}

}  // namespace rw::test
