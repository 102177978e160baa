// 16-bit copies of f32 parameters: the bits of trainings with and without them, and their cost.
#include <cstring>

#include "core/autograd/checkpoint.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int64_t classes = 3;

struct CopiedNet {
  Sequential model;
  CopiedNet() {
    manual_seed(5);
    model.emplace<Conv2d>(3, 8, 3, Conv2dOptions{.padding = 1});
    model.emplace<BatchNorm2d>(8);
    model.emplace<ReLU>();
    model.emplace<GlobalAvgPool>();
    model.emplace<Linear>(8, 16);
    model.emplace<ReLU>();
    model.emplace<Linear>(16, classes);
  }
  Tensor loss(int seed, bool segment = false, DType dtype = DType::f16) {
    const Autocast autocast(dtype);
    const Tensor x = tensor(some_values(4 * 6 * 6 * 3, seed), {4, 6, 6, 3});
    Tensor y;
    {
      const CheckpointScope scope(segment);
      y = model(x);
    }
    return cross_entropy(y, tensor(std::vector<int32_t>{seed % 3, 1, 2, 0}, {4}));
  }
};

std::vector<uint32_t> weight_bits(const Module& model) {
  std::vector<uint32_t> all;
  for (const Tensor& p : model.parameters())
    for (const float v : p.to_vector()) {
      uint32_t word;
      std::memcpy(&word, &v, sizeof(v));
      all.push_back(word);
    }
  return all;
}

struct CopyOptions {
  WeightCopyUse use = WeightCopyUse::outside_segments;
  uint32_t accumulate = 1;
  bool segments = false, overflows = false, ema = false, loads = false;
};

// Returns the bits after some updates, with everything that may happen between them.
std::vector<uint32_t> train_with_copies(const CopyOptions& how) {
  CopiedNet net;
  Accumulate adam(Adam(net.model.parameters(), {.lr = 0.01f}), how.accumulate);
  adam.set_weight_copies(how.use);
  if (how.overflows) adam.set_scaler(LossScaler::dynamic(0x1p30f, 2, 0.5f, 3));
  std::optional<Ema> ema;
  if (how.ema) ema.emplace(adam, EmaOptions{.decay = 0.9f});
  std::vector<uint32_t> seen;
  for (int step = 0; step < 8; ++step) {
    for (uint32_t k = 0; k < how.accumulate; ++k) {
      adam.backward(net.loss(step * 10 + static_cast<int>(k), how.segments));
      adam.step();
    }
    adam.zero_grad();
    if (how.ema) ema->apply();
    if (how.loads && step == 3) {
      Tensor w = net.model.parameters()[0];
      w.copy_(w.detach() * 0.5f);
    }
    const NoGrad guard;  // an evaluation reads the newest weights, or the averages in their place
    net.model.eval();
    const float loss = net.loss(99).item();
    net.model.train();
    uint32_t word;
    std::memcpy(&word, &loss, sizeof(loss));
    seen.push_back(word);
    if (how.ema) ema->restore();
  }
  const std::vector<uint32_t> bits = weight_bits(net.model);
  seen.insert(seen.end(), bits.begin(), bits.end());
  return seen;
}

uint64_t live_bytes_of(Purpose purpose) {
  return default_device()->memory_report().live_by_purpose[static_cast<int>(purpose)];
}

}  // namespace

TEST_CASE("weight copies: trainings have the bits of those that cast") {
  on_each_device([] {
    for (const uint32_t accumulate : {1u, 3u})
      for (const bool segments : {false, true})
        for (const int extra : {0, 1, 2, 3}) {
          CopyOptions how{.use = WeightCopyUse::never,
                          .accumulate = accumulate,
                          .segments = segments,
                          .overflows = extra == 1,
                          .ema = extra == 2,
                          .loads = extra == 3};
          CAPTURE(accumulate);
          CAPTURE(segments);
          CAPTURE(extra);
          const std::vector<uint32_t> cast = train_with_copies(how);
          how.use = WeightCopyUse::outside_segments;
          CHECK(train_with_copies(how) == cast);
          how.use = WeightCopyUse::always;
          CHECK(train_with_copies(how) == cast);
        }
  });
}

TEST_CASE_FIXTURE(CpuDevice, "weight copies: a dispatch per slab and update, none per micro-batch" *
                                 doctest::test_suite("host")) {
  // Returns the kernels of micro-batches in the forward, and of an update.
  const auto calls = [](WeightCopyUse use, bool segments) {
    CopiedNet net;
    SGD sgd(net.model.parameters(), {.lr = 0.01f});
    sgd.set_weight_copies(use);
    for (int step = 0; step < 2; ++step) {  // the second step is like all that follow
      default_device()->reset_peak();
      sgd.backward(net.loss(step, segments));
      sgd.backward(net.loss(step + 1, segments));
      sgd.step();
      sgd.zero_grad();
    }
    const WorkByPhase work = default_device()->work();
    return std::array{work[static_cast<int>(Phase::forward)].calls,
                      work[static_cast<int>(Phase::replay)].calls,
                      work[static_cast<int>(Phase::update)].calls};
  };
  constexpr uint64_t cast = 6;  // weights and biases of the convolution and two linear layers
  const auto without = calls(WeightCopyUse::never, false);
  const auto with = calls(WeightCopyUse::outside_segments, false);
  CHECK(without[0] - with[0] == 2 * cast);
  CHECK(with[2] - without[2] == 1);
  const auto cast_in_segments = calls(WeightCopyUse::never, true);
  CHECK(calls(WeightCopyUse::outside_segments, true) == cast_in_segments);
  const auto always = calls(WeightCopyUse::always, true);
  CHECK(cast_in_segments[0] - always[0] == 2 * cast);
  CHECK(cast_in_segments[1] - always[1] == 2 * (cast - 1));  // nothing reads the last bias again
}

TEST_CASE_FIXTURE(CpuDevice,
                  "weight copies: their memory is the parameters', and only what is used" *
                      doctest::test_suite("host")) {
  CopiedNet net;
  Embedding unused(1000, 8);
  std::vector<Tensor> parameters = unused.parameters();
  for (const Tensor& p : net.model.parameters()) parameters.push_back(p);
  SGD sgd(parameters, {.lr = 0.01f});
  sgd.set_weight_copies(WeightCopyUse::outside_segments);
  const uint64_t before = live_bytes_of(Purpose::parameter), whole = live();
  const auto step = [&](DType dtype) {
    sgd.backward(net.loss(1, false, dtype));
    sgd.step();
    sgd.zero_grad();
  };
  const auto extra = [&] { return live_bytes_of(Purpose::parameter) - before; };
  step(DType::f16);
  const auto elements = static_cast<uint64_t>(net.model.parameter_count());
  CHECK(extra() >= 2 * (elements - 16));  // the norm's weights have none
  CHECK(extra() <= 2 * elements + 512);   // gaps, and the place of a storage
  step(DType::f16);
  CHECK(extra() <= 2 * elements + 512);
  step(DType::f32);  // it casts nothing, so unused copies go
  CHECK(extra() == 0);
  step(DType::f16);
  CHECK(extra() > 0);
  sgd.set_weight_copies(WeightCopyUse::never);
  CHECK(extra() == 0);
  CHECK(live() == whole);
}

TEST_CASE_FIXTURE(CpuDevice, "weight copies: a dry run predicts their memory to the byte" *
                                 doctest::test_suite("host")) {
  for (const WeightCopyUse use :
       {WeightCopyUse::never, WeightCopyUse::outside_segments, WeightCopyUse::always})
    for (const bool segments : {false, true}) {
      const auto program = [&] {
        CopiedNet net;
        SGD sgd(net.model.parameters(), {.lr = 0.01f});
        sgd.set_weight_copies(use);
        for (int step = 0; step < 3; ++step) {
          sgd.backward(net.loss(step, segments));
          sgd.step();
          sgd.zero_grad();
          default_device()->end_step();
        }
      };
      device->reset_peak();
      program();
      const MemoryReport real = device->memory_report();
      CHECK(plan(program).memory.peak == real.peak);
    }
}

TEST_CASE_FIXTURE(CpuDevice, "weight copies: a weight that changes before backward is an error" *
                                 doctest::test_suite("host")) {
  Linear layer(4, 4);
  SGD sgd(layer.parameters(), {.lr = 0.1f});
  sgd.set_weight_copies(WeightCopyUse::always);
  const Autocast autocast(DType::f16);
  Tensor x = full({2, 4}, 1);
  x.set_requires_grad();
  for (const bool segment : {false, true}) {
    Tensor y;
    {
      const CheckpointScope scope(segment);
      y = layer(x);
    }
    Tensor loss = sum(y);
    y = {};
    layer.weight.copy_(layer.weight.detach() * 2.0f);
    {
      const NoGrad guard;
      layer(x);
    }  // makes the copy again
    CHECK_THROWS_AS(loss.backward(), AutogradError);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "weight copies: views of parameters and other types" *
                                 doctest::test_suite("host")) {
  Linear layer(6, 4);
  SGD sgd(layer.parameters(), {.lr = 0.1f});
  sgd.set_weight_copies(WeightCopyUse::always);
  const NoGrad guard;
  const Autocast autocast(DType::f16);
  const Tensor w = layer.weight.detach();
  const auto same = [](const Tensor& x) {
    return Autocast::input(x).to_vector() == copy_of(x, DType::f16).to_vector() &&
           Autocast::input(x).dtype() == DType::f16;
  };
  CHECK(same(w));
  CHECK(same(transpose(w, 0, 1)));
  CHECK(same(slice(w, 0, 1, 3)));
  CHECK(same(slice(w, 1, 1, 3)));  // it has gaps, so it is cast
  CHECK(same(expand(slice(w, 0, 1, 2), {5, 6})));
  CHECK(same(full({3}, 0.1f)));
  fill_(w, 0.3f);
  CHECK(same(w));
}
