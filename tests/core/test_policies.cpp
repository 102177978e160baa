// Selective checkpointing, verification of replays, and reports on misplaced segments.
#include <map>

#include "planner/follow/segment_report.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

constexpr int64_t policy_width = 16;

// Counts how often the forward of each op runs in `body`.
template <class F>
std::map<std::string, int> runs_of(Device& device, F&& body) {
  device.start_trace();
  body();
  std::map<std::string, int> runs;
  for (const TracedCall& call : device.stop_trace().calls)
    if (call.phase == Phase::forward || call.phase == Phase::replay) ++runs[call.op];
  return runs;
}

struct Layers {
  Tensor w = leaf(policy_width * policy_width), x = leaf(4 * policy_width);

  Tensor forward() const {
    Tensor y = reshape(x, {4, policy_width});
    for (int i = 0; i < 3; ++i)
      y = gelu(layer_norm(matmul(y, reshape(w, {policy_width, policy_width}))));
    return y;
  }
  std::vector<std::vector<float>> gradients(const std::function<Tensor(const Layers&)>& loss) {
    loss(*this).backward();
    std::vector<std::vector<float>> all = {w.grad().to_vector(), x.grad().to_vector()};
    w.set_grad({});
    x.set_grad({});
    return all;
  }
};

Tensor in_segment(const Layers& layers, SavePolicy policy) {
  Tensor y;
  {
    const auto segment = checkpoint(std::move(policy));
    y = layers.forward();
  }
  return sum(square(y));
}

// Doubles its input and adds a counter, so it is not a pure function.
int impure_calls = 0;
const Op impure = {"impure_double",
                   [](const std::any&, std::span<Tensor> in) {
                     const Tensor y = in[0] * 2.0f;
                     return std::vector<Tensor>{y + static_cast<float>(impure_calls++)};
                   },
                   [](Record&, std::span<Tensor> dy) { return std::vector<Tensor>{dy[0] * 2.0f}; }};

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "policies: kept outputs are made once, the rest twice" *
                                 doctest::test_suite("host")) {
  Layers layers;
  const auto plain = layers.gradients([](const Layers& l) { return sum(square(l.forward())); });
  const auto count = [&](SavePolicy policy) {
    return runs_of(*device, [&] {
      CHECK(layers.gradients([&](const Layers& l) { return in_segment(l, policy); }) == plain);
    });
  };
  auto nothing = count(save_nothing());
  CHECK(nothing["matmul"] == 6);
  CHECK(nothing["layer_norm"] == 6);
  CHECK(nothing["gelu"] == 5);  // only the loss reads the last one's output
  auto matmuls = count(save_matmuls());
  CHECK(matmuls["matmul"] == 3);
  CHECK(matmuls["layer_norm"] == 6);
  auto named = count(save_ops({"layer_norm"}));
  CHECK(named["layer_norm"] == 3);
  CHECK(named["matmul"] == 6);
  auto costly =
      count([](const SaveQuery& q) { return q.cost.flops > 0 && q.bytes >= 4 * policy_width * 4; });
  CHECK(costly["matmul"] == 3);
  CHECK(count([](const SaveQuery& q) { return q.bytes > 1 << 30; })["matmul"] == 6);
}

TEST_CASE_FIXTURE(CpuDevice, "policies: hold inside nested segments, and for a second backward" *
                                 doctest::test_suite("host")) {
  Layers layers;
  const auto plain = layers.gradients([](const Layers& l) { return sum(square(l.forward())); });
  const auto nested = [](const Layers& l) {
    Tensor y;
    {
      const auto outer = checkpoint(save_matmuls());
      const auto inner = checkpoint();
      y = l.forward();
    }
    return sum(square(y));
  };
  auto runs = runs_of(*device, [&] { CHECK(layers.gradients(nested) == plain); });
  CHECK(runs["matmul"] == 3);
  CHECK(runs["layer_norm"] == 6);
  const auto twice = [&](const Tensor& loss) {
    loss.backward({}, true);
    loss.backward();
    const auto gradient = layers.w.grad().to_vector();
    layers.w.set_grad({});
    layers.x.set_grad({});
    return gradient;
  };
  CHECK(twice(nested(layers)) == twice(sum(square(layers.forward()))));
}

TEST_CASE_FIXTURE(CpuDevice, "policies: what a segment keeps the ones around it need not make" *
                                 doctest::test_suite("host")) {
  Layers layers;
  const auto runs = runs_of(*device, [&] {
    layers.gradients([](const Layers& l) {
      const CheckpointScope outer;
      Tensor y;
      {
        const auto inner = checkpoint(save_matmuls());
        y = matmul(reshape(l.x, {4, policy_width}), reshape(l.w, {policy_width, policy_width}));
      }
      return sum(square(y));  // reads the product outside the inner segment
    });
  });
  CHECK(runs.at("matmul") == 1);
}

TEST_CASE_FIXTURE(CpuDevice, "policies: what nobody reads goes when backward leaves its segment" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(4096);
  Tensor y = x;
  {
    const CheckpointScope outer;
    for (int i = 0; i < 4; ++i) y = exp(std::move(y));
    const CheckpointScope inner(true, [](const SaveQuery&) { return true; });
    for (int i = 0; i < 6; ++i) y = std::move(y) * 0.5f;
  }
  const Tensor loss = sum(std::move(y));
  const uint64_t before = live();
  CHECK(before >= 7 * x.bytes());
  device->take_high_water();
  loss.backward();  // the outer segment is replayed into the place of the inner one's values
  CHECK(device->take_high_water() <= before + 3 * x.bytes());
}

TEST_CASE_FIXTURE(CpuDevice, "policies: keep what they promise until backward, and no longer" *
                                 doctest::test_suite("host")) {
  Layers layers;
  const auto held = [&](SavePolicy policy) {
    const uint64_t before = live();
    Tensor loss = in_segment(layers, std::move(policy));
    const uint64_t bytes = live() - before;
    loss.backward();
    layers.w.set_grad({});
    layers.x.set_grad({});
    return bytes;
  };
  const uint64_t nothing = held(save_nothing());
  CHECK(held(save_matmuls()) == nothing + 3 * 4 * policy_width * 4);
  const Tensor loss = in_segment(layers, [](const SaveQuery&) { return true; });
}

TEST_CASE_FIXTURE(CpuDevice, "verify_replay: names the first op that gives other bits" *
                                 doctest::test_suite("host")) {
  tape().verify_replay(true);
  const Tensor x = leaf(policy_width);
  const auto run = [&](bool is_impure) {
    Tensor y;
    {
      const auto segment = checkpoint();
      y = tanh(x * 0.5f);
      y = is_impure ? apply1(impure, {}, {y}) : y * 2.0f;
      y = exp(y) * dropout(y, 0.5f);
    }
    sum(y).backward();
    Tensor(x).set_grad({});
  };
  run(false);
  const std::string message = message_of<AutogradError>([&] { run(true); });
  CHECK(contains(message, "replay of 'impure_double' must give the bits"));
  CHECK(contains(message, "f32 (16)"));
  CHECK(live() == x.impl().storage->range().size);
  tape().verify_replay(false);
  run(true);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "segments: what is misplaced is reported with the reason and the bytes" *
                      doctest::test_suite("host")) {
  const Tensor x = leaf(256), w = leaf(256);
  const auto problem = [&](const std::function<Tensor()>& forward) {
    const Tensor y = forward();
    const auto reports = segment_reports(tape());
    REQUIRE(!reports.empty());
    return reports.back();
  };
  CHECK(contains(problem([&] {
                   const Tensor y = exp(x);
                   { const auto segment = checkpoint(); }
                   return y;
                 }).problem,
                 "it is empty"));
  CHECK(contains(problem([&] {
                   const auto segment = checkpoint();
                   return x + w;
                 }).problem,
                 "there is nothing to drop"));
  // The op behind it saves the value that it would drop.
  const SegmentReport kept = problem([&] {
    Tensor y;
    {
      const auto segment = checkpoint();
      y = exp(x);
    }
    return square(y);
  });
  CHECK(contains(kept.problem, "kept anyway"));
  CHECK(kept.spared == 0);
  // It holds its input, which a plain run would not keep, and drops one value of the same size.
  const SegmentReport costly = problem([&] {
    const Tensor in = x + w;
    Tensor y;
    {
      const auto segment = checkpoint();
      y = exp(in + 1.0f) + 2.0f;
    }
    return y;
  });
  CHECK(contains(costly.problem,
                 "it keeps 1.00 KiB of inputs for its replay and spares only 1.00 KiB"));
  const SegmentReport good = problem([&] {
    Tensor y = x;
    {
      const auto segment = checkpoint();
      for (int i = 0; i < 4; ++i) y = relu(y);
      y = y + 1.0f;
    }
    for (int i = 0; i < 4; ++i) y = relu(y);  // gone when the segment is replayed
    return y;
  });
  CHECK(good.problem.empty());
  CHECK(good.peak_without - good.peak >= 3 * 1024);
  CHECK(good.spared == 4 * 1024);
  CHECK(good.held == 0);
  CHECK(good.records == 5);
  CHECK(good.replay.bytes > 0);
}

TEST_CASE_FIXTURE(CpuDevice, "eviction: drops values worth what is asked for, and not one more") {
  const Tensor x = leaf(1024);
  const uint64_t each = 1024 * sizeof(float);
  const auto segment = tape().open_segment({}, /* evicts */ true);
  Tensor y = x;
  for (int i = 0; i < 6; ++i) y = sin(y);  // reads its input in backward
  const Tensor loss = sum(y);
  tape().close_segment(segment);
  y = {};
  uint64_t left = live();
  const uint64_t before = tape().evictions();
  for (const auto& [asked, dropped] : {std::pair(2 * each, 2), std::pair(each + 1, 2)}) {
    CHECK(tape().evict(asked));
    CHECK(live() == left - dropped * each);
    left = live();
  }
  CHECK(tape().evictions() == before + 4);
  CHECK(tape().evict(UINT64_MAX));
  CHECK(!tape().evict(1));  // nothing is left
  loss.backward();
  CHECK(x.grad().defined());
}

TEST_CASE_FIXTURE(CpuDevice, "policies: a value that two segments keep is counted once") {
  const Tensor x = leaf(8);
  const auto saved = [&](bool is_nested) {
    const auto outer = checkpoint([](const SaveQuery&) { return true; });
    Tensor y;
    if (is_nested) {
      const auto inner = checkpoint();
      y = sin(x);
    } else {
      y = sin(x);
    }
    return tape().stats().saved_tensors;
  };
  const uint64_t flat = saved(false);
  CHECK(saved(true) == flat + 1);  // both read x
}

}  // namespace rw::test
