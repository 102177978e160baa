// Random graphs in random nests of segments: always the bits of the plain run, nothing left over.
#include <cmath>
#include <random>

#include "tests/tape_fixture.h"

namespace rw::test {

namespace {

constexpr int64_t side = 6;

// A program of random ops over a few [side, side] values; equal seeds give equal programs.
class Program {
 public:
  Program(uint32_t seed, bool segments, const std::vector<Tensor>& leaves)
      : random_(seed), segments_(segments), leaves_(leaves), values_(leaves) {}

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
        const CheckpointScope scope(segments_);
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
  std::vector<Tensor> leaves_, values_;
};

// What a run of a program gives: the losses, then the gradients.
std::vector<std::vector<float>> run(uint32_t seed, bool segments, std::vector<Tensor>& leaves) {
  manual_seed(seed);
  std::vector<std::vector<float>> results;
  {
    auto [loss, other] = Program(seed, segments, leaves).run();
    results = {loss.to_vector(), other.to_vector()};
    const bool both = seed % 3 == 1 && other.requires_grad();
    if (!both) other = {};
    loss.backward({}, both || seed % 3 == 2);
    if (both) other.backward();
    if (seed % 3 == 2) loss.backward();
  }
  for (Tensor& t : leaves) {
    results.push_back(t.grad().defined() ? t.grad().to_vector() : std::vector<float>());
    t.set_grad({});
  }
  return results;
}

// One backward, one of each of two losses, or two of one, in turn.
void check_graphs(uint32_t count) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> values = leaf(side * side + i).to_vector();
    leaves.push_back(
        tensor(std::span(values).first(side * side), {side, side}).set_requires_grad());
  }
  const uint64_t at_rest = default_device()->memory_report().live;
  const uint64_t replayed = Tape::current()->replayed_records();
  for (uint32_t seed = 0; seed < count; ++seed) {
    INFO("seed " << seed);
    const auto plain = run(seed, false, leaves);
    REQUIRE(std::isfinite(plain[0][0]));
    const auto with_segments = run(seed, true, leaves);
    REQUIRE(with_segments == plain);
    REQUIRE(default_device()->memory_report().live == at_rest);
    REQUIRE(Tape::current()->stats().records == 0);
  }
  CHECK(Tape::current()->replayed_records() - replayed > 5 * count);
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "random graphs: segments give the same bits and leave nothing") {
  check_graphs(300);
}

TEST_CASE("random graphs: on vulkan") {
  try {
    set_default_device(open_backend("vulkan"));
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  check_graphs(24);
}

}  // namespace rw::test
