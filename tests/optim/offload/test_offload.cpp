// Host memory that kernels reach, and optimizers whose states lie there.
#include <algorithm>
#include <memory>

#include "core/tensor/primitives.h"
#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/adama.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adafactor.h"
#include "optim/adagrad.h"
#include "optim/adam8bit.h"
#include "optim/ema.h"
#include "optim/lamb.h"
#include "optim/lion.h"
#include "optim/lookahead.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int64_t part_unit = Placement::part_unit;

uint64_t optimizer_bytes(const MemoryReport& report) {
  return report.live_by_purpose[static_cast<int>(Purpose::optimizer)];
}

using Parameters = std::vector<Tensor>;
using MakeOffloaded = std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>;

template <class O, class Options>
MakeOffloaded offload_maker(const Options& options) {
  return [=](std::vector<ParameterGroup> groups) {
    return std::make_unique<O>(std::move(groups), options);
  };
}

// Returns optimizers one run of which may be a part of a parameter, and others that cannot divide
// one.
std::vector<std::pair<std::string, MakeOffloaded>> offload_optimizers() {
  return {{"sgd", offload_maker<SGD>(SGDOptions{.lr = 0.1f, .momentum = 0.9f})},
          {"sgd without a state", offload_maker<SGD>(SGDOptions{.lr = 0.1f})},
          {"adam", offload_maker<Adam>(AdamOptions{.weight_decay = 0.1f})},
          {"adamw, amsgrad", offload_maker<AdamW>(AdamWOptions{.amsgrad = true})},
          {"lion", offload_maker<Lion>(LionOptions{})},
          {"adagrad", offload_maker<Adagrad>(AdagradOptions{.initial_accumulator_value = 0.5f})},
          {"adam8bit", offload_maker<Adam8bit>(AdamOptions{})},
          {"adafactor", offload_maker<Adafactor>(AdafactorOptions{})},
          {"lamb", offload_maker<Lamb>(LambOptions{})},
          {"muon", [](std::vector<ParameterGroup> groups) {
             ParameterGroup matrices = groups[0], others = groups[0];
             std::erase_if(matrices.parameters, [](const Tensor& p) { return p.rank() < 2; });
             std::erase_if(others.parameters, [](const Tensor& p) { return p.rank() >= 2; });
             return std::make_unique<Muon>(std::vector{matrices}, MuonOptions{},
                                           std::vector{others});
           }}};
}

// Returns a parameter of more than a part, one of less than a unit of parts, and small ones between
// them.
Parameters parameters_in_parts(DType dtype) {
  Parameters all;
  for (const Shape& shape : {Shape{6}, Shape{2 * part_unit + 12345}, Shape{96, 64}, Shape{5, 3}}) {
    const auto seed = static_cast<int>(all.size());
    Values values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 37 + static_cast<size_t>(seed)) % 101) / 50 - 1;
    all.push_back(tensor(values, shape, dtype).set_requires_grad());
    all.back().impl().name = "p" + std::to_string(seed);
  }
  return all;
}

Tensor offload_loss(const Parameters& parameters, int t) {
  Tensor total;
  for (const Tensor& p : parameters) {
    const Tensor part = sum(square(cast(p, DType::f32) - 0.1f * static_cast<float>(t)));
    total = total ? total + part : part;
  }
  return total;
}

void train_between(Optimizer& optimizer, const Parameters& parameters, int from, int to) {
  optimizer.set_max_norm(1);
  for (int t = from; t < to; ++t) {
    optimizer.zero_grad();
    optimizer.backward(offload_loss(parameters, t));
    optimizer.step();
  }
}

std::shared_ptr<Device> fresh_device() {
  const auto device = Device::create(open_backend(default_device()->info().backend));
  exchange_default_device(device);
  return device;
}

// The parts of training that lie in host memory.
enum class Where { device, states_on_host, all_on_host };

std::vector<ParameterGroup> offloaded(std::vector<ParameterGroup> groups, Where where) {
  if (where == Where::device) return groups;
  const Offload how{.part_bytes = 2 * MiB,
                    .parameter_bytes = where == Where::all_on_host ? MiB : 0};
  return offload_states(std::move(groups), how);
}

// The place of states: f32 moments of `n` elements.
struct OffloadedMoments {
  Parameters parameters;
  std::unique_ptr<AdamW> optimizer;

  OffloadedMoments(int64_t n, bool offloaded, DType dtype = DType::f32, uint64_t part = 4 * MiB)
      : parameters{full({n}, 0.5f, dtype).set_requires_grad()} {
    std::vector<ParameterGroup> groups = one_group(parameters);
    if (offloaded) groups = offload_states(groups, {.part_bytes = part});
    optimizer = std::make_unique<AdamW>(groups);
  }
};

}  // namespace

TEST_CASE("host memory: kernels and copies reach it, and it has an account of its own") {
  on_each_device([] {
    const auto device = fresh_device();
    const Values values = some_values(1000);
    const uint64_t live = device->live();
    Tensor there;
    {
      const PlaceScope place(MemoryPlace::host);
      there = empty({1000}, DType::f32);
    }
    CHECK(there.impl().storage->place() == MemoryPlace::host);
    CHECK(device->live() == live);
    MemoryReport report = device->memory_report();
    CHECK(report.host_live >= 4000);
    CHECK(report.host_live < 5000);
    CHECK(report.host_peak == report.host_live);
    CHECK(report.host_reserved >= report.host_live);
    CHECK(report.peak == live);
    CHECK(contains(report.str(), "host memory"));
    CHECK(contains(report.json(), "\"host_live\""));

    there.copy_from(values);
    CHECK(there.to_vector() == values);
    const Tensor here = there + 1.0f;  // its place is the op's
    CHECK(here.impl().storage->place() == MemoryPlace::device);
    copy_into(here, there);
    CHECK(there.to_vector() == here.to_vector());

    // The result of a kernel is copied, and the next kernel reads the copy.
    Tensor target = zeros({1000});
    copy_dense(make_view(there, {990}, {1}, 3), make_view(target, {990}, {1}, 7));
    Values expected(1000);
    const Values source = here.to_vector();
    std::copy(source.begin() + 3, source.begin() + 993, expected.begin() + 7);
    CHECK(target.to_vector() == expected);
    const uint32_t version = target.impl().storage->version();
    copy_dense(there, target);
    CHECK(target.impl().storage->version() == version + 1);
    CHECK(add(target, target).to_vector()[5] == 2 * source[5]);
    CHECK_THROWS_AS(copy_dense(there, make_view(target, {999}, {1}, 0)), ValueError);
    CHECK_THROWS_AS(copy_dense(there, zeros(there.shape(), DType::f16)), ValueError);

    there = {};
    report = device->memory_report();
    CHECK(report.host_live == 0);
    CHECK(report.host_peak > 0);
    device->reset_peak();
    CHECK(device->memory_report().host_peak == 0);
    device->trim();
    CHECK(device->memory_report().host_reserved == 0);
  });
}

TEST_CASE_FIXTURE(CpuDevice, "host memory: no op writes its result over an input that lies there" *
                                 doctest::test_suite("host")) {
  Tensor there;
  {
    const PlaceScope place(MemoryPlace::host);
    there = empty({8}, DType::f32);
  }
  there.copy_from(Values(8, 1));
  const Tensor y = std::move(there) * 2.0f;
  CHECK(y.impl().storage->place() == MemoryPlace::device);
  CHECK(y.to_vector() == Values(8, 2));
}

TEST_CASE("host memory: limits and budgets of the device are not its own" *
          doctest::test_suite("host")) {
  const CpuDevice cpu;
  const auto device = Device::create(open_backend("reference"), 64 << 10);
  exchange_default_device(device);
  const PurposeScope purpose(Purpose::data);
  const auto device_budget =
      device->exchange_budget({.bytes = 1024, .reclaim = [](uint64_t) { return false; }});
  {
    const PlaceScope place(MemoryPlace::host);
    const Tensor large = empty({1 << 20}, DType::f32);
    CHECK(device->memory_report().host_live == 4 * MiB);
    CHECK(device->memory_report().reserved == 0);
    const auto most = static_cast<int64_t>(device->info().max_block_bytes);
    const std::string message = message_of<OutOfMemory>([&] { empty({most + 1}, DType::u8); });
    CHECK(contains(message, format_bytes(most) + " more of host memory"));
    CHECK(contains(message, "4.00 MiB of it are in use"));
  }
  CHECK_THROWS_AS(empty({1000}, DType::f32), OutOfMemory);
  device->exchange_budget(device_budget);
}

TEST_CASE("offload: the same bits, of every optimizer") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16})
      for (const auto& [name, make] : offload_optimizers()) {
        CAPTURE(name);
        CAPTURE(rw::name(dtype));
        for (const Where where : {Where::states_on_host, Where::all_on_host}) {
          // Each dtype and each place once; every pair of them in --all.
          if ((dtype == DType::f32) == (where == Where::states_on_host) && !rounds(0, 1)) continue;
          CAPTURE(static_cast<int>(where));
          const Parameters a = parameters_in_parts(dtype), b = parameters_in_parts(dtype);
          const auto plain = make(one_group(a));
          const auto other = make(offloaded(one_group(b), where));
          train_between(*plain, a, 0, 3);
          train_between(*other, b, 0, 3);
          CHECK(raw_bytes(a) == raw_bytes(b));
          CHECK(raw_bytes(plain->state()) == raw_bytes(other->state()));
          // Either loads the other's state.
          plain->load_state(other->state());
          other->load_state(plain->state());
          train_between(*plain, a, 3, 4);
          train_between(*other, b, 3, 4);
          CHECK(raw_bytes(a) == raw_bytes(b));
        }
      }
  });
}

TEST_CASE("offload: groups, windows, skipped updates and what follows updates") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16}) {
      const auto run = [&](Where where) {
        const Parameters p = parameters_in_parts(dtype);
        std::vector<ParameterGroup> groups = decay_groups(p, 0.1f);
        if (where == Where::states_on_host)  // of one group
          groups[0] = offload_states({groups[0]}, {.part_bytes = MiB})[0];
        else
          groups = offloaded(std::move(groups), where);
        Accumulate optimizer(AdamW(groups), 2);
        optimizer.set_scaler(LossScaler::dynamic(0x1p10f, 2, 0.5f, 3));
        Ema ema(optimizer);
        const Lookahead lookahead(optimizer, 2);
        for (int t = 0; t < 8; ++t) {
          const Tensor loss = offload_loss(p, t);
          optimizer.backward(t == 4 ? loss * std::numeric_limits<float>::infinity() : loss);
          optimizer.step();
          optimizer.zero_grad();
        }
        CHECK(optimizer.skipped() == 1);
        ema.apply();
        auto bytes = raw_bytes(p);
        ema.restore();
        for (auto& b : raw_bytes(p)) bytes.push_back(b);
        return bytes;
      };
      CHECK(run(Where::states_on_host) == run(Where::device));
      CHECK(run(Where::all_on_host) == run(Where::device));
    }
  });
}

TEST_CASE("offload: updates in backward take states where they lie, the same bits") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16}) {
      const auto run = [&](Where where, const auto& make) {
        const Parameters p = parameters_in_parts(dtype);
        auto optimizer = make(offloaded(one_group(p), where));
        for (int t = 0; t < 4; ++t) {
          optimizer.backward(offload_loss(p, t));
          optimizer.step();
          optimizer.zero_grad();
        }
        return raw_bytes(p);
      };
      const auto fused = [](std::vector<ParameterGroup> groups) {
        return FusedBackward(AdamW(std::move(groups)));
      };
      const auto twice = [](std::vector<ParameterGroup> groups) {
        return FusedBackward(AdamW(std::move(groups)), FusedPasses::two);
      };
      const auto adama = [](std::vector<ParameterGroup> groups) {
        return AdamA(std::move(groups), 2);
      };
      const auto windows = [](std::vector<ParameterGroup> groups) {
        Accumulate optimizer(AdamW(std::move(groups)), 2);
        optimizer.set_max_norm(0.5f);
        return optimizer;
      };
      for (const Where where : {Where::states_on_host, Where::all_on_host}) {
        CHECK(run(where, windows) == run(Where::device, windows));
        CHECK(run(where, fused) == run(Where::device, fused));
        CHECK(run(where, twice) == run(Where::device, twice));
        CHECK(run(where, adama) == run(Where::device, adama));
      }
    }
  });
}

TEST_CASE("offload: the device holds no moments, and three parts of them for the update") {
  on_each_device([] {
    const int64_t n = 8 * part_unit;
    const auto held = [&](bool offloaded, DType dtype) {
      const auto device = fresh_device();
      const OffloadedMoments moments(n, offloaded, dtype);
      return device->memory_report();
    };
    for (const DType dtype : {DType::f32, DType::f16}) {
      const uint64_t bytes = static_cast<uint64_t>(n) * (dtype == DType::f32 ? 8 : 12);
      const MemoryReport plain = held(false, dtype), other = held(true, dtype);
      CHECK(optimizer_bytes(plain) - optimizer_bytes(other) == bytes);
      // Nor when the optimizer is made: parameters are in memory twice while they move.
      CHECK(other.peak <= 2 * static_cast<uint64_t>(n) * size_of(dtype) + MiB / 8);
      CHECK(other.host_live == bytes);
      CHECK(plain.host_live == 0);
    }
    const auto device = fresh_device();
    OffloadedMoments moments(n, true);
    offload_loss(moments.parameters, 1).backward();
    device->reset_peak();
    const uint64_t live = device->live();
    moments.optimizer->step();
    const uint64_t staged = device->memory_report().peak - live;
    CHECK(staged == 3 * 4 * MiB);
  });
}

TEST_CASE("offload: small parameters share a part of so many bytes at most" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Parameters small;
  for (int i = 0; i < 10; ++i) small.push_back(zeros({1000}).set_requires_grad());
  const Adam optimizer(offload_states(small, {.part_bytes = 3 * 8000}));
  const auto& runs = optimizer.parameters().runs();
  CHECK(runs.size() == 4);  // moments of three, in f32
  for (const FlatParameters::Run& run : runs) CHECK(run.elements.size <= 3000);
}

TEST_CASE("offload: copies run beside updates") {
  const Env whole("REWIND_LIMITS",
                  "dispatch-us:1000000000");  // no dispatch in parts, since dispatches are counted
  on_each_device([] {
    const auto device = fresh_device();
    if (device->info().backend != "vulkan") return;
    OffloadedMoments moments(8 * part_unit, true, DType::f32, 2 * MiB);  // 8 parts
    offload_loss(moments.parameters, 1).backward();
    moments.optimizer->step();
    offload_loss(moments.parameters, 1).backward();
    device->synchronize();
    const uint64_t before = device->backend().stats().barriers;
    moments.optimizer->step();
    // Two in the kernels before; one between two parts, and one before the last part goes back.
    CHECK(device->backend().stats().barriers - before <= 2 + 8 + 1);
  });
}

TEST_CASE("offload: dry runs predict the device's and the host's memory to the byte") {
  on_each_device([] {
    const auto program = [] {
      OffloadedMoments moments(3 * part_unit + 100, true, DType::f16, 3 * MiB);
      for (int t = 0; t < 5; ++t) train_between(*moments.optimizer, moments.parameters, t, t + 1);
    };
    const auto device = fresh_device();
    const Forecast forecast = plan(program);
    program();
    const MemoryReport real = device->memory_report();
    CHECK(real.host_peak > 0);
    CHECK(forecast.memory.host_peak == real.host_peak);
    CHECK(forecast.memory.host_reserved == real.host_reserved);
    CHECK(forecast.memory.peak == real.peak);
    CHECK(forecast.memory.peak_by_purpose == real.peak_by_purpose);
    CHECK(forecast.memory.peak_reserved == real.peak_reserved);
    for (int phase = 0; phase < phase_count; ++phase)
      CHECK(forecast.work[phase].bytes == device->work()[phase].bytes);
  });
}

TEST_CASE("offload: parts must have bytes" * doctest::test_suite("host")) {
  const CpuDevice cpu;
  CHECK_THROWS_AS(AdamW(offload_states({leaf(10)}, {.part_bytes = 0})), ValueError);
  std::vector<ParameterGroup> groups = offload_states({leaf(10)});
  groups.push_back(offload_parameters({leaf(10)})[0]);
  CHECK(contains(message_of<ValueError>([&] { AdamW(std::move(groups)); }), "got 0 and 536870912"));
}
