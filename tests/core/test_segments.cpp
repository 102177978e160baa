// Checkpoint segments: the same bits as the plain run, less memory, and nothing left behind.
#include <cmath>
#include <functional>
#include <tuple>

#include "ops/autocast.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

using Values = std::vector<float>;
using Block = std::function<Tensor(const Tensor&)>;

// Returns the loss and the gradients of `parameters` after one backward of sum(program(segments)).
std::vector<Values> train_segments(const std::vector<Tensor>& parameters, bool segments,
                                   const std::function<Tensor(bool)>& program) {
  manual_seed(11);
  std::vector<Values> result;
  {
    const Tensor loss = sum(cast(program(segments), DType::f32));
    result.push_back(loss.to_vector());
    loss.backward();
  }
  for (Tensor p : parameters) {
    result.push_back(p.grad().defined() ? p.grad().to_vector() : Values());
    p.set_grad({});
  }
  return result;
}

// Checks that segments change nothing, and that something was replayed.
void check_same(const std::vector<Tensor>& parameters, const std::function<Tensor(bool)>& program) {
  Tape& tape = *Tape::current();
  const auto plain = train_segments(parameters, false, program);
  const uint64_t replayed = tape.replayed_records(), live = default_device()->memory_report().live;
  CHECK(train_segments(parameters, true, program) == plain);
  CHECK(tape.replayed_records() > replayed);
  CHECK(default_device()->memory_report().live == live);
}

Tensor square_leaf(int64_t side, const std::string& name = "") {
  Tensor t = leaf(side * side, name);
  return reshape(t.detach(), {side, side}).detach().set_requires_grad();
}

Tensor nest(const Block& block, const Tensor& x, int depth, bool segments) {
  const CheckpointScope scope(segments);
  const Tensor y = block(x);
  return depth == 1 ? y : block(nest(block, y, depth - 1, segments));
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "segments: scope and function forms" * doctest::test_suite("host")) {
  const Tensor x = leaf(64), w = leaf(64);
  const auto block = [](const Tensor& a, const Tensor& b) { return tanh(exp(a) * b); };
  check_same({x, w}, [&](bool on) {
    if (on) return square(checkpoint(block, x, w));
    return square(block(x, w));
  });
  check_same({x, w}, [&](bool on) {
    Tensor y = x;
    for (int i = 0; i < 3; ++i) {
      const CheckpointScope scope(on);
      y = block(y, w);
    }
    return y;
  });
}

TEST_CASE_FIXTURE(CpuDevice, "segments: replay runs what the vjps read, once, and stops early" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(64);
  const auto replays = [&](const Block& block) {
    const uint64_t before = tape().replayed_records();
    sum(checkpoint(block, x)).backward();
    return tape().replayed_records() - before;
  };
  CHECK(replays([](const Tensor& t) { return square(square(square(t))); }) == 2);  // inputs
  CHECK(replays([](const Tensor& t) { return exp(exp(exp(t))); }) == 3);           // outputs
  CHECK(replays([](const Tensor& t) { return square(t) + 1.0f; }) == 0);           // only x
  CHECK(replays([](const Tensor& t) { return t * 2.0f + 1.0f; }) == 0);            // nothing
  CHECK(replays([](const Tensor& t) {
          const Tensor unused = exp(square(t));
          return square(sin(t));
        }) == 1);
  // Held as the value of the detached handle, which is the same.
  CHECK(replays([](const Tensor& t) {
          const Tensor y = exp(t);
          return y * y.detach();
        }) == 0);
}

TEST_CASE_FIXTURE(CpuDevice, "segments: nested to any depth" * doctest::test_suite("host")) {
  const Tensor x = leaf(32), w = leaf(32);
  const Block block = [&](const Tensor& t) { return sin(exp(t * 0.5f) * w); };
  for (int depth = 1; depth <= 4; ++depth)
    check_same({x, w}, [&](bool on) { return nest(block, x, depth, on); });
  check_same({x, w}, [&](bool on) {  // two inside one, with work around them
    const CheckpointScope outer(on);
    Tensor y = block(x);
    for (int i = 0; i < 2; ++i) {
      const CheckpointScope inner(on);
      y = block(block(y)) + y;
    }
    return block(y);
  });
}

TEST_CASE_FIXTURE(CpuDevice, "segments: several outputs, unused ones, branches, skips" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(36), w = leaf(36);
  const auto body = [&](const Tensor& t) {
    const Tensor a = exp(t * w), b = sin(a), unused = square(b);
    return std::tuple(a, b * a, unused);
  };
  check_same({x, w}, [&](bool on) {
    Tensor y = x * 1.0f;
    for (int i = 0; i < 2; ++i) {
      const auto [a, b, unused] = on ? checkpoint(body, y) : body(y);
      y = (i == 0 ? a : a * 0.5f) + tanh(b) + y;  // y: around the segment
    }
    return y;
  });
}

TEST_CASE_FIXTURE(CpuDevice, "segments: views, in-place, handles that the user keeps" *
                                 doctest::test_suite("host")) {
  const Tensor x = square_leaf(6), w = square_leaf(6);
  check_same({x, w}, [&](bool on) {
    Tensor kept, y = x * 2.0f;
    {
      const CheckpointScope scope(on);
      y = transpose(std::move(y), 0, 1);
      y = relu(matmul(y, w) + 0.5f);  // over the sum
      y = tanh(std::move(y) * 3.0f);
      kept = slice(y, 0, 1, 5, 2);
      y = reshape(exp(y), {4, 9});
    }
    return concat({reshape(y, {36}), flatten(square(kept))}, 0);
  });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "segments: f16 autocast, dropout, random numbers" * doctest::test_suite("host")) {
  const Tensor x = square_leaf(8), w = square_leaf(8), v = square_leaf(8);
  check_same({x, w, v}, [&](bool on) {
    Tensor y = x;
    for (int i = 0; i < 2; ++i) {
      const CheckpointScope scope(on);
      const Autocast autocast(DType::f16);
      y = dropout(gelu(linear(y, w)), 0.3f);
      y = tanh(matmul(y, v)) + cast(randn({8, 8}), DType::f16);
    }
    return y;
  });
}

TEST_CASE_FIXTURE(CpuDevice, "segments: batch norm's running statistics are updated once" *
                                 doctest::test_suite("host")) {
  const Tensor x = square_leaf(8), weight = leaf(8), bias = leaf(8);
  std::vector<Values> running_after;
  check_same({x, weight, bias}, [&](bool on) {
    Tensor running = zeros({8}), y = x;
    for (int i = 0; i < 2; ++i) {
      const CheckpointScope scope(on);
      const BatchNormResult r = batch_norm(exp(y), weight, bias);
      const NoGrad guard;
      running.copy_(running * 0.9f + r.mean * 0.1f);
      y = r.y;
    }
    running_after.push_back(running.to_vector());
    return square(y);
  });
  CHECK(running_after[0] == running_after[1]);
}

TEST_CASE_FIXTURE(CpuDevice, "segments: retain replays again" * doctest::test_suite("host")) {
  const Tensor x = leaf(16);
  const Tensor loss = sum(nest([](const Tensor& t) { return exp(sin(t)); }, x, 3, true));
  loss.backward({}, true);
  const Values once = x.grad().to_vector();
  Tensor(x).set_grad({});
  const uint64_t held = live();
  for (int i = 0; i < 2; ++i) {
    loss.backward({}, true);
    CHECK(x.grad().to_vector() == once);
    Tensor(x).set_grad({});
    CHECK(live() == held);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "segments: disjoint graphs, in either order, in one segment or two" *
                                 doctest::test_suite("host")) {
  const Block block = [](const Tensor& t) { return exp(sin(square(t))); };
  const Tensor a = leaf(8), b = leaf(8);
  const auto expected = train_segments({a, b}, false, [&](bool) { return block(a) + block(b); });
  for (const bool first_first : {true, false})
    for (const bool shared : {true, false}) {
      Tensor la, lb;
      {
        const CheckpointScope scope(shared);
        la = shared ? sum(block(a)) : sum(checkpoint(block, a));
        lb = shared ? sum(block(b)) : sum(checkpoint(block, b));
      }
      (first_first ? la : lb).backward();
      (first_first ? lb : la).backward();
      CHECK(Tensor(a).grad().to_vector() == expected[1]);
      CHECK(Tensor(b).grad().to_vector() == expected[2]);
      Tensor(a).set_grad({});
      Tensor(b).set_grad({});
    }
}

TEST_CASE_FIXTURE(CpuDevice, "segments: dropped results free what their segment holds" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(256);
  const Tensor kept = sum(exp(x));  // keeps the tape from being empty
  const uint64_t before = live();
  for (int i = 0; i < 50; ++i) {
    const Tensor data = full({256}, static_cast<float>(i));
    checkpoint([&] { return square(exp(x * data)); });
  }
  CHECK(live() == before);
  kept.backward();
}

TEST_CASE_FIXTURE(CpuDevice, "segments: nothing is held for results that were dropped" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(256);
  const auto held = [&](bool branch, const SavePolicy& policy) {
    const uint64_t before = live();
    Tensor y = x;
    {
      const CheckpointScope outer, inner(true, policy);
      y = exp(y);
      const Tensor data = ones({256});
      if (branch) {
        const Tensor unused = sin(square(y * data) + data);
      }
      y = tanh(y);
    }
    const uint64_t bytes = live() - before;
    sum(y).backward();
    Tensor(x).set_grad({});
    return bytes;
  };
  const SavePolicy everything = [](const SaveQuery&) { return true; };
  for (const SavePolicy& policy : {SavePolicy(), everything})
    CHECK(held(true, policy) == held(false, policy));
}

TEST_CASE_FIXTURE(CpuDevice, "segments: a parameter may change before the replay" *
                                 doctest::test_suite("host")) {
  const auto gradient = [](bool in_segment) {
    Tensor w = leaf(8, "block.weight");
    Tensor loss;
    {
      const CheckpointScope scope(in_segment);
      loss = sum(exp(exp(w + 1.0f)));
    }
    w.detach().copy_(ones({8}));
    loss.backward();
    return w.grad().to_vector();
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE_FIXTURE(CpuDevice, "segments: a replay that gives another shape is an error" *
                                 doctest::test_suite("host")) {
  static int64_t size;
  size = 8;
  const Op growing = {
      .name = "growing",
      .forward = [](const std::any&,
                    std::span<Tensor>) { return std::vector<Tensor>{ones({size++})}; },
      .vjp = [](Record&, std::span<Tensor> dy) { return std::vector<Tensor>{dy[0]}; }};
  const Tensor x = leaf(8);
  const Tensor loss = sum(checkpoint([&] { return square(apply1(growing, {}, {x})); }));
  CHECK(message_of<AutogradError>([&] { loss.backward(); }) ==
        "[checkpoint] replay of growing must give what the forward gave, got f32 (9) and f32 (8)");
}

TEST_CASE_FIXTURE(CpuDevice, "segments: an exception inside leaves them closed and empty" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(64);
  const uint64_t before = live();
  CHECK_THROWS_AS(checkpoint([&] {
                    const Tensor y = exp(x);
                    return checkpoint([&] { return y + ones({3}); });
                  }),
                  ShapeError);
  CHECK_FALSE(tape().in_segment());
  CHECK(live() == before);
  CHECK(tape().stats().segments == 0);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "segments: without gradients they are nothing" * doctest::test_suite("host")) {
  const NoGrad guard;
  const Tensor x = leaf(64);
  const Tensor y = checkpoint([&] { return exp(square(x)); });
  CHECK(tape().stats().segments == 0);
  CHECK(y.is_leaf());
}

// ---- memory
namespace {

constexpr int64_t segment_width = 4096;

Tensor layers(Tensor x, const Tensor& w, int count) {
  for (int i = 0; i < count; ++i) x = tanh(std::move(x) * w);
  return x;
}

// Binary nesting down to 2 layers.
Tensor halves(Tensor x, const Tensor& w, int count) {
  if (count <= 2) return layers(std::move(x), w, count);
  for (int half = 0; half < 2; ++half) {
    const auto scope = checkpoint();
    x = halves(std::move(x), w, count / 2);
  }
  return x;
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice,
                  "segments: the peak of 32 layers falls, and nesting makes it fall further" *
                      doctest::test_suite("host")) {
  const Tensor x = leaf(segment_width), w = leaf(segment_width);
  const auto peak_of = [&](const std::function<Tensor()>& forward) {
    device->reset_peak();
    sum(forward()).backward();
    const uint64_t peak = device->memory_report().peak;
    Tensor(x).set_grad({});
    Tensor(w).set_grad({});
    return static_cast<double>(peak) / (segment_width * 4);  // in activations
  };
  const double plain = peak_of([&] { return layers(x, w, 32); });
  const double segments = peak_of([&] {
    Tensor y = x;
    for (int i = 0; i < 6; ++i) {
      const auto scope = checkpoint();
      y = layers(std::move(y), w, i < 2 ? 6 : 5);
    }
    return y;
  });
  const double nested = peak_of([&] { return halves(x, w, 32); });
  MESSAGE("peak in activations: plain " << plain << ", segments " << segments << ", nested "
                                        << nested);
  CHECK(plain >= 32);
  CHECK(segments <= 6 + 6 + 10);  // ends of segments, one segment, working set
  CHECK(nested < segments);
}

}  // namespace rw::test
