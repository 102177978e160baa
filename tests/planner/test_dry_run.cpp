// Dry runs: the predicted peak is the real one, to the byte; nothing is left behind.
#include <cmath>

#include "models/bert.h"
#include "models/resnet.h"
#include "nn/recurrent.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "planner/follow/follower.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

void resnet_steps(DType dtype, int blocks) {
  ResNet model(resnet_cifar(8, 1, BlockKind::basic, 10));
  model.set_checkpoint(blocks);
  Accumulate optimizer(SGD(one_group(model.parameters()), {.lr = 0.1f, .momentum = 0.9f}), 2);
  if (dtype == DType::f16) optimizer.set_scaler(LossScaler::dynamic());
  for (int i = 0; i < 4; ++i) {
    {
      const Tensor x = randn({3, 16, 16, 3}, 0, 1, dtype);
      const std::vector<int32_t> labels = {1, 2, 3};
      Tensor loss;
      {
        const Autocast autocast(dtype, dtype != DType::f32);
        loss = cross_entropy(model(x), tensor(labels, {3}));
      }
      optimizer.backward(loss, 3);
      optimizer.step();
    }
    default_device()->end_step();
  }
}

void bert_steps(DType dtype, int every) {
  BertConfig config = BertConfig::preset("tiny");
  config.vocab_size = 300;
  BertForPreTraining model(config);
  model.bert.set_checkpoint(every);
  AdamW optimizer(one_group(model.parameters()), {});
  if (dtype == DType::f16) optimizer.set_scaler(LossScaler::dynamic());
  const std::vector<int32_t> ids(2 * 24, 5), at = {1, 4, 30}, targets = {7, 8, 9};
  for (int i = 0; i < 3; ++i) {
    {
      const Autocast autocast(dtype, dtype != DType::f32);
      const Tensor hidden = model.forward({.ids = tensor(ids, {2, 24})});
      const Tensor loss = model.token_loss(hidden, tensor(at, {3}), tensor(targets, {3}));
      optimizer.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    }
    default_device()->end_step();
  }
}

void lstm_steps() {
  LSTM lstm(12, 16, {.layers = 2});
  Lamb optimizer(one_group(lstm.parameters()), {});
  for (int i = 0; i < 3; ++i) {
    {
      const Tensor loss = mean(square(lstm(randn({7, 3, 12}))));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    default_device()->end_step();
  }
}

struct Named {
  const char* name;
  std::function<void()> program;
};

const std::vector<Named> dry_run_programs = {
    {"resnet f32", [] { resnet_steps(DType::f32, 0); }},
    {"resnet f16", [] { resnet_steps(DType::f16, 0); }},
    {"resnet f16 block", [] { resnet_steps(DType::f16, 1); }},
    {"bert f32", [] { bert_steps(DType::f32, 0); }},
    {"bert f16 block", [] { bert_steps(DType::f16, 1); }},
    {"lstm", lstm_steps},
};

}  // namespace

TEST_CASE("dry run: predicts every model's memory to the byte") {
  on_each_device([] {
    for (const Named& p : dry_run_programs) {
      const std::string name = p.name;
      const bool is_vulkan = default_device()->info().backend == "vulkan";
      if (is_vulkan && !name.ends_with("f16 block") && name != "lstm")
        continue;  // drivers compile for long
      if (is_vulkan && test::is_brief() && name != "lstm") continue;
      INFO(name);
      const auto device = Device::create(open_backend(default_device()->info().backend));
      exchange_default_device(device);
      const Forecast forecast = plan(p.program);
      REQUIRE(device->memory_report().peak == 0);
      p.program();
      const MemoryReport real = device->memory_report();
      CHECK(forecast.memory.peak == real.peak);
      CHECK(forecast.memory.peak_by_purpose == real.peak_by_purpose);
      CHECK(forecast.memory.peak_reserved == real.peak_reserved);
      CHECK(forecast.memory.reserved == real.reserved);
      CHECK(forecast.memory.naive == real.naive);
      CHECK(forecast.flops() > 0);
      CHECK(forecast.work[0].flops == device->work()[0].flops);
      CHECK(forecast.memory.followed_steps == real.followed_steps);
      const double reserved = static_cast<double>(real.reserved);
      // In small models, the smallest blocks decide.
      CHECK(reserved <= std::max(1.03 * static_cast<double>(real.peak), 20.0 * (1 << 20)));
    }
  });
}

TEST_CASE("dry run: predicts the peak of every row of the op table" * doctest::test_suite("host")) {
  const DeviceScope scope(Device::create(open_backend("cpu")));
  for (const OpCase& row : op_cases())
    for (const DType dtype : {DType::f32, DType::f16}) {
      INFO(row.name, " in ", std::string(name(dtype)));
      const auto program = [&] { evaluate(make_inputs(row, dtype), row.run); };
      const Forecast forecast = plan(program);
      default_device()->reset_peak();
      program();
      CHECK(forecast.memory.peak == default_device()->memory_report().peak);
    }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "dry run: steady state reserves at most 3 % more than is live at the peak" *
                      doctest::test_suite("host")) {
  // Calls zero_grad() after the update or, as many loops do, before the forward.
  const auto train = [](Module& model, const std::function<Tensor()>& loss, bool after = true) {
    SGD optimizer(one_group(model.parameters()), {.lr = 0.1f, .momentum = 0.9f});
    for (int i = 0; i < 4; ++i) {
      if (!after) optimizer.zero_grad();
      loss().backward();
      optimizer.step();
      if (after) optimizer.zero_grad();
      default_device()->end_step();
    }
  };
  const auto resnet = [&](int depth, int blocks, DType dtype) {
    ResNet model(resnet_imagenet(depth, 1000));
    model.set_checkpoint(blocks);
    train(
        model,
        [&] {
          const Autocast autocast(dtype, dtype != DType::f32);
          const Tensor x = full({8, 224, 224, 3}, 0, dtype);
          return cross_entropy(model(x), tensor(std::vector<int32_t>(8), {8}));
        },
        depth == 50);
  };
  const auto bert = [&](int every) {
    const BertConfig config = BertConfig::preset("base");
    BertForPreTraining model(config);
    model.bert.set_checkpoint(every);
    train(model, [&] {
      const Tensor hidden = model.forward({.ids = tensor(std::vector<int32_t>(4 * 128), {4, 128})});
      const std::vector<int32_t> twenty(20);
      return model.token_loss(hidden, tensor(twenty, {20}), tensor(twenty, {20}));
    });
  };
  const std::vector<Named> large = {
      {"resnet18", [&] { resnet(18, 0, DType::f32); }},
      {"resnet50 f16", [&] { resnet(50, 0, DType::f16); }},
      {"resnet50 blocks", [&] { resnet(50, 1, DType::f32); }},
      {"bert base", [&] { bert(0); }},
      {"bert base layers", [&] { bert(1); }},
  };
  for (const Named& p : large) {
    INFO(std::string(p.name));
    const Forecast first = plan(p.program);
    const MemoryReport& report = first.memory;
    const MemoryReport learnt = plan(p.program, {.learnt = first.steps}).memory;
    const double peak = static_cast<double>(report.peak);
    const double ratio = static_cast<double>(report.reserved) / peak;
    const double from_the_start = static_cast<double>(learnt.peak_reserved) / peak;
    MESSAGE(std::string(p.name) << ": peak " << format_bytes(report.peak) << ", reserved / peak "
                                << ratio << ", before the plan "
                                << format_bytes(report.peak_reserved) << ", learnt "
                                << from_the_start);
    CHECK(learnt.peak == report.peak);
    CHECK(from_the_start <= 1.03);
    CHECK(report.followed_steps >= 1);
    CHECK(report.plan_misses == 0);
    CHECK(ratio <= 1.03);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "dry run: leaves device, tape, generator and context as they were" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(64);
  const Tensor y = tanh(x);
  manual_seed(17);
  const uint64_t before = live();
  CHECK_THROWS_AS(plan(dry_run_programs[0].program, {.memory_limit = 100 << 10}), OutOfMemory);
  const Forecast forecast = plan(dry_run_programs[0].program, {.trace = true});
  CHECK(live() == before);
  CHECK(default_device() == device);
  CHECK(default_generator().position() == 0);
  CHECK(context().phase == Phase::forward);
  sum(y).backward();
  CHECK(x.grad().to_vector()[0] == doctest::Approx(1 - std::pow(std::tanh(x.to_vector()[0]), 2)));
  REQUIRE(forecast.trace);
  // The trace agrees with the report.
  std::vector<std::pair<uint64_t, int64_t>> changes;
  for (const TracedTensor& t : forecast.trace->tensors) {
    changes.emplace_back(t.begin, static_cast<int64_t>(t.bytes));
    if (t.end != UINT64_MAX) changes.emplace_back(t.end, -static_cast<int64_t>(t.bytes));
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, peak = 0;
  for (const auto& [time, bytes] : changes) peak = std::max(peak, now += bytes);
  CHECK(peak == static_cast<int64_t>(forecast.memory.peak));
  CHECK(now == 0);
  CHECK(forecast.trace->steps.size() == 4);
  double flops = 0;
  for (const TracedCall& call : forecast.trace->calls) flops += call.flops;
  CHECK(flops == doctest::Approx(forecast.flops()));
}

TEST_CASE_FIXTURE(CpuDevice, "dry run: ways to save memory can be switched off" *
                                 doctest::test_suite("host")) {
  const auto program = [] { resnet_steps(DType::f32, 1); };
  const uint64_t all = plan(program).memory.peak;
  {
    const DropScope drops_nothing(false);
    const uint64_t no_segments = plan(program).memory.peak;
    CHECK(all < no_segments);
    const OverwriteScope overwrites_nothing(false);
    const MemoryReport nothing = plan(program).memory;
    CHECK(nothing.peak >= no_segments);
    CHECK(nothing.naive > nothing.peak);
  }
  const auto chain = [] {
    Tensor x = ones({1000});
    for (int i = 0; i < 3; ++i) x = relu(std::move(x) * 2.0f);
  };
  CHECK(plan(chain).memory.peak == 4096);
  const OverwriteScope overwrites_nothing(false);
  CHECK(plan(chain).memory.peak == 2 * 4096);
}

TEST_CASE("dry run: one tensor may have most of the processor's memory" *
          doctest::test_suite("host")) {
  for (const char* name : {"cpu", "reference"}) {
    CAPTURE(name);
    std::unique_ptr<Backend> dry = open_backend(name)->dry();
    const uint64_t room = dry->info().memory_bytes / 4 * 3;
    const auto elements = static_cast<int64_t>(std::min<uint64_t>(room / 4, UINT32_MAX));
    const uint64_t unit = dry->info().alignment;
    const Forecast forecast = dry_run(std::move(dry), [&] { zeros({elements}); });
    CHECK(forecast.memory.peak == (static_cast<uint64_t>(elements) * 4 + unit - 1) / unit * unit);
    CHECK_THROWS_AS(dry_run(open_backend(name)->dry(), [&] { zeros({2, elements}); }), Error);
  }
}

TEST_CASE("dry run: profiles predict a device that is not there") {
  std::string profile;
  try {
    profile = device_profile("vulkan");
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  const std::string file = "dry_run_profile.json";
  std::FILE* out = std::fopen(file.c_str(), "w");
  std::fputs(profile.c_str(), out);
  std::fclose(out);
  const Forecast saved = dry_run(open_backend("dry:" + file), dry_run_programs[0].program);
  const Forecast present = dry_run(open_backend("dry:vulkan"), dry_run_programs[0].program);
  CHECK(saved.memory.peak == present.memory.peak);
  CHECK(saved.memory.reserved == present.memory.reserved);
  std::remove(file.c_str());
  CHECK_THROWS_AS(open_backend("dry:" + file), FileError);
  CHECK_THROWS_AS(open_backend("dry:nonsense"), DeviceError);
}

// A limit at every allocation of a training step gives an explanation, no leak, and a usable
// device.
TEST_CASE("out of memory: at every allocation of a step" * doctest::test_suite("host")) {
  const auto train = [](int64_t batch, bool segments) {
    Tensor w = leaf(32 * 32), v = leaf(32 * 32);
    Tensor x = ones({batch, 32});
    {
      const CheckpointScope scope(segments);
      for (int i = 0; i < 4; ++i)
        x = tanh(matmul(std::move(x), reshape(i % 2 ? w : v, {32, 32})) * 0.1f);
    }
    mean(square(std::move(x))).backward();
  };
  const auto device = set_default_device(open_backend("dry:reference"));
  // The live bytes after every allocation are the limits at which the run stops exactly there.
  device->start_trace();
  train(64, false);
  const MemoryTrace trace = device->stop_trace();
  REQUIRE(trace.tensors.size() > 15);
  std::vector<uint64_t> limits;
  for (size_t i = 0; i < trace.tensors.size(); ++i) {
    uint64_t live = 0;
    for (const TracedTensor& t : trace.tensors)
      if (t.begin <= trace.tensors[i].begin && t.end > trace.tensors[i].begin) live += t.bytes;
    limits.push_back(live - trace.tensors[i].bytes);
  }
  int stopped = 0;
  for (const uint64_t limit : limits) {
    device->trim();
    device->set_memory_limit(std::max<uint64_t>(limit, 1));
    const std::string message = message_of<OutOfMemory>([&] { train(64, false); });
    REQUIRE(message.starts_with("["));
    REQUIRE(contains(message, "the memory limit is"));
    REQUIRE(contains(message, "more in "));
    ++stopped;
    REQUIRE(device->live() == 0);
    REQUIRE(Tape::current()->stats().records == 0);
    device->set_memory_limit(0);
    train(64, false);  // the device is usable
    REQUIRE(device->live() == 0);
  }
  CHECK(stopped == static_cast<int>(limits.size()));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "dry run: what scopes around it have set does not change the prediction" *
                      doctest::test_suite("host")) {
  const auto peak = [] {
    return plan([] {
             Linear layer(256, 256);
             mean(layer(rand({128, 256}))).backward();
           })
        .memory.peak;
  };
  const uint64_t plain = peak();
  {
    const NoGrad guard;
    CHECK(peak() == plain);
    CHECK_FALSE(grad_enabled());
  }
  {
    const Autocast autocast(DType::f16);
    CHECK(peak() == plain);
    CHECK(Autocast::input(rand({2})).dtype() == DType::f16);
  }
  CHECK(Autocast::input(rand({2})).dtype() == DType::f32);
}

}  // namespace rw::test
