// The examples' plans: a dry run of shapes alone predicts the real run's memory to the byte.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

#include "apps/bert/steps.h"
#include "apps/mnist/steps.h"
#include "apps/resnet/steps.h"
#include "data/text/vocabulary.h"
#include "io/models/model.h"
#include "ops/ops.h"
#include "planner/choices/remedies.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/temporary_folder.h"
#include "trainer/program/planning.h"
#include "trainer/program/planning_json.h"

namespace rw::test {

namespace {

// A program without and with values.
struct Example {
  std::string name;
  MakeSteps make;
  std::function<void(TrainingSteps&, int64_t batch, int step)> real_step;
  std::function<void(TrainingSteps&, int64_t batch)> real_evaluation;

  TrainingProgram program(const StepSettings& settings) const {
    return {.title = name, .samples = "samples", .make = make, .settings = settings};
  }
};

std::vector<float> pixels(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 23) / 23;
  return values;
}

std::vector<int32_t> labels(int64_t count, int32_t classes) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i) % classes;
  return values;
}

Example resnet_example() {
  const ResNetRecipe recipe{
      .model = resnet_cifar(8, 1, BlockKind::basic, 10), .height = 16, .width = 16};
  return {"resnet8",
          [=](const StepSettings& s) { return std::make_unique<ResNetSteps>(recipe, s); },
          [](TrainingSteps& steps, int64_t n, int) {
            static_cast<ResNetSteps&>(steps).step({pixels(n * 16 * 16 * 3), labels(n, 10)});
          },
          [](TrainingSteps& steps, int64_t n) {
            static_cast<ResNetSteps&>(steps).evaluate({pixels(n * 16 * 16 * 3), labels(n, 10)});
          }};
}

Example mnist() {
  return {
      "mnist",
      [](const StepSettings& s) { return std::make_unique<MnistSteps>(MnistTask::Recipe(), s); },
      [](TrainingSteps& steps, int64_t n, int) {
        static_cast<MnistSteps&>(steps).step({pixels(n * 784), labels(n, 10)});
      },
      [](TrainingSteps& steps, int64_t n) {
        static_cast<MnistSteps&>(steps).evaluate({pixels(n * 784), labels(n, 10)});
      }};
}

BertRecipe bert_recipe() {
  BertConfig config = BertConfig::preset("tiny");
  config.vocab_size = 1000;
  return {.config = config, .length = 24, .classes = 3};
}

// Returns sequences of several lengths, with every sixth or seventh token masked.
TextBatch text_batch(int64_t rows, int64_t length, int step) {
  TextBatch batch{.rows = rows, .length = length};
  const auto cells = rows * length;
  batch.ids = labels(cells, 1000);
  batch.token_types.assign(static_cast<size_t>(cells), 0);
  batch.targets.assign(static_cast<size_t>(cells), -100);
  for (int64_t row = 0; row < rows; ++row) {
    batch.lengths.push_back(static_cast<int32_t>(length - row % 3));
    batch.labels.push_back(static_cast<int32_t>(row % 3));
    for (int64_t at = 1; at < length - 2; at += 7 + (row + step) % 3, ++batch.predictions)
      batch.targets[static_cast<size_t>(row * length + at)] = 5;
  }
  return batch;
}

Example pretrain() {
  const BertRecipe recipe = bert_recipe();
  return {"bert", [=](const StepSettings& s) { return std::make_unique<PretrainSteps>(recipe, s); },
          [](TrainingSteps& steps, int64_t n, int step) {
            static_cast<PretrainSteps&>(steps).step(text_batch(n, 24, step));
          },
          [](TrainingSteps& steps, int64_t n) {
            static_cast<PretrainSteps&>(steps).evaluate(text_batch(n, 24, 0));
          }};
}

Example finetune() {
  const BertRecipe recipe = bert_recipe();
  return {"finetune",
          [=](const StepSettings& s) { return std::make_unique<FinetuneSteps>(recipe, s); },
          [](TrainingSteps& steps, int64_t n, int step) {
            static_cast<FinetuneSteps&>(steps).step(text_batch(n, 24, step));
          },
          [](TrainingSteps& steps, int64_t n) {
            static_cast<FinetuneSteps&>(steps).evaluate(text_batch(n, 24, 0));
          }};
}

// Runs `body` on a new device like the default one, which has learnt the steps, and returns its
// memory.
MemoryReport on_new_device(const Planner& planner, const StepSettings& settings, uint64_t limit,
                           const std::function<void()>& body) {
  const std::string kind = default_device()->info().backend;
  const auto before = exchange_default_device(Device::create(open_backend(kind), limit));
  const std::shared_ptr<Device> device = default_device();
  device->learn(planner.steps(settings));
  MemoryReport memory;
  try {
    const SettingsScope scope(settings);
    body();
  } catch (...) {
    exchange_default_device(before);
    throw;
  }
  memory = device->memory_report();
  exchange_default_device(before);
  return memory;
}

Module& model_of(TrainingSteps& steps) {
  return static_cast<ModelSteps&>(steps).trained();
}

void evaluate_example(const Example& example, TrainingSteps& steps, int64_t rows) {
  const NoGrad guard;
  model_of(steps).eval();
  example.real_evaluation(steps, rows);
}

// Returns the memory after two updates and an evaluation.
MemoryReport real_run(const Example& example, const StepSettings& settings, uint64_t limit = 0) {
  const Planner planner({.make = example.make});
  uint64_t naive = 0, misses = 0, live = 0;
  MemoryReport memory = on_new_device(planner, settings, limit, [&] {
    const auto steps = example.make(settings);
    for (uint32_t i = 0; i < 2 * settings.accumulate; ++i)
      example.real_step(*steps, settings.batch, static_cast<int>(i));
    naive = default_device()->memory_report().naive;
    // An evaluation begins like a step, so it is recognised late, and lies partly elsewhere than
    // planned.
    misses = default_device()->memory_report().plan_misses;
    evaluate_example(example, *steps, settings.batch);
    live = default_device()->live();
  });
  memory.naive = naive;
  memory.plan_misses = misses;
  memory.live = live;
  return memory;
}

void check_prediction(const Example& example, const StepSettings& settings) {
  INFO(example.name, ", ", name(settings.dtype), ", ", settings.checkpoint, ", accumulate ",
       settings.accumulate);
  const Planner planner({.make = example.make});
  const MemoryReport predicted = planner.forecast(settings).memory;
  const MemoryReport real = real_run(example, settings);
  CHECK(predicted.peak == real.peak);
  CHECK(predicted.peak_by_purpose == real.peak_by_purpose);
  CHECK(predicted.naive == real.naive);
  CHECK(predicted.live == real.live);
  CHECK(predicted.peak_reserved == real.peak_reserved);
  CHECK(real.plan_misses == 0);
}

}  // namespace

TEST_CASE("plan: dry steps predict real memory to the byte" * doctest::test_suite("programs")) {
  on_each_device([] {
    // Only some, since software drivers compile for long.
    if (default_device()->info().backend == "vulkan") {
      check_prediction(resnet_example(),
                       {.dtype = DType::f16, .batch = 2, .accumulate = 2, .checkpoint = "block"});
      check_prediction(pretrain(), {.dtype = DType::f16, .batch = 2});
      return check_prediction(mnist(), {.dtype = DType::f32, .batch = 2});
    }
    for (const DType dtype : {DType::f16, DType::f32})
      for (const char* checkpoint : {"none", "block"}) {
        check_prediction(resnet_example(), {.dtype = dtype, .batch = 4, .checkpoint = checkpoint});
        check_prediction(pretrain(), {.dtype = dtype, .batch = 3, .checkpoint = checkpoint});
      }
    check_prediction(resnet_example(),
                     {.dtype = DType::f16, .batch = 3, .accumulate = 3, .checkpoint = "stage"});
    check_prediction(pretrain(),
                     {.dtype = DType::f16, .batch = 2, .accumulate = 3, .checkpoint = "block"});
    check_prediction(finetune(), {.dtype = DType::f32, .batch = 3});
    check_prediction(finetune(),
                     {.dtype = DType::f16, .batch = 2, .accumulate = 2, .checkpoint = "block"});
    check_prediction(mnist(), {.dtype = DType::f32, .batch = 1, .accumulate = 10});
    check_prediction(mnist(), {.dtype = DType::f16, .batch = 10, .checkpoint = "block"});
  });
}

TEST_CASE("plan: loading, odd batches, saving and evaluation are forecast" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  for (const Example& example : {resnet_example(), mnist(), pretrain(), finetune()})
    for (const uint32_t accumulate : {1u, 2u}) {
      INFO(example.name, ", accumulate ", accumulate);
      const int64_t many = example.name == "mnist" ? 900 : 160;  // more than what training takes
      const StepSettings settings{
          .dtype = DType::f16, .batch = 3, .accumulate = accumulate, .evaluation_batch = many};
      const Planner planner({.make = example.make,
                             .loads = true,
                             .saves = true,
                             .steps = batches_of(13),
                             .evaluation = batches_of(many + 6)});
      save_model(folder / "start", model_of(*example.make(settings)));
      uint64_t trained = 0;
      const auto body = [&] {
        const auto steps = example.make(settings);
        load_model(folder / "start", model_of(*steps));
        for (int i = 0; i < 5; ++i) example.real_step(*steps, i < 4 ? 3 : 1, i);
        steps->flush();
        trained = default_device()->memory_report().peak;
        save_model(folder / "end", model_of(*steps));
        default_device()->end_step();
        evaluate_example(example, *steps, many);
        evaluate_example(example, *steps, 6);
      };
      const Forecast forecast = planner.forecast(settings);
      const MemoryReport real = on_new_device(planner, settings, 0, body);
      CHECK(forecast.memory.peak == real.peak);
      CHECK(forecast.steps_peak == trained);
      CHECK(forecast.memory.peak > forecast.steps_peak);  // the evaluation is large
      CHECK(forecast.memory.peak_reserved == real.peak_reserved);
      // So a limit within which training fits is refused before it is too late.
      const uint64_t limit = (forecast.memory.peak + forecast.steps_peak) / 2;
      CHECK_THROWS_AS(planner.forecast(settings, {.memory_limit = limit}), OutOfMemory);
      CHECK_THROWS_AS(on_new_device(planner, settings, limit, body), OutOfMemory);
      // As many samples at a time as need no more memory than training.
      StepSettings free = settings;
      free.evaluation_batch = planner.evaluation_batch(settings, 500, 0);
      CHECK(free.evaluation_batch >= settings.batch);
      CHECK(planner.forecast(free).memory.peak == forecast.steps_peak);
      // The larger ones of 500, its half and so on need more.
      const auto needs = [&](int64_t rows) {
        StepSettings other = settings.shortened();
        other.evaluation_batch = rows;
        const MemoryReport memory =
            planner.forecast(other, {.memory = DryMemory::unlimited}).memory;
        return std::pair(memory.peak, memory.peak_reserved);
      };
      const auto least = needs(settings.batch);
      for (int64_t rows = 500; rows > free.evaluation_batch; rows /= 2) {
        const auto larger = needs(rows);
        CHECK((larger.first > least.first || larger.second > least.second));
      }
    }
}

TEST_CASE("plan: planned recomputation keeps a real run within its budget" *
          doctest::test_suite("programs")) {
  set_default_device(open_backend("cpu"));
  for (const Example& example : {resnet_example(), pretrain()}) {
    INFO(example.name);
    StepSettings settings{.dtype = DType::f16, .batch = 16};
    const Planner planner({.make = example.make});
    Search search = planner.search(settings);
    const uint64_t plain = search.plain().peak(), least = search.candidates().back().peak();
    CHECK(least < plain);
    settings.recompute = std::make_shared<const Plan>(search.budget((plain + least) / 2).plan);
    const MemoryReport real = real_run(example, settings);
    CHECK(real.peak <= (plain + least) / 2);
    CHECK(real.peak == planner.forecast(settings).memory.peak);
    // Eviction to the same budget.
    settings.recompute = std::make_shared<const Plan>(Plan{.evicts = true});
    settings.budget = (plain + least) / 2;
    const MemoryReport evicting = real_run(example, settings);
    CHECK(evicting.peak <= settings.budget);
    CHECK(evicting.peak == planner.forecast(settings).memory.peak);
    const uint64_t known = search.candidates().back().peak();
    CHECK_THROWS_WITH_AS(search.budget(known - 1), doctest::Contains(std::to_string(known).c_str()),
                         OutOfMemory);
  }
}

TEST_CASE("plan: the largest batch fits, and one sample more does not" *
          doctest::test_suite("programs")) {
  set_default_device(open_backend("cpu"));
  for (const Example& example : {resnet_example(), pretrain(), mnist()}) {
    INFO(example.name);
    const Planner planner({.make = example.make});
    const uint64_t bytes = planner.forecast({.dtype = DType::f16, .batch = 5}).memory.peak * 5 / 4;
    for (const int64_t guess : {1, 1000}) {
      StepSettings settings{.dtype = DType::f16};
      settings.batch = planner.largest_batch(settings, bytes, guess);
      REQUIRE(settings.batch > 0);
      CHECK(real_run(example, settings, bytes).peak_reserved <= bytes);
      ++settings.batch;
      CHECK_THROWS_AS(planner.forecast(
                          settings, {.memory = DryMemory::blocks_of_device, .memory_limit = bytes}),
                      OutOfMemory);
    }
    CHECK(planner.largest_batch({}, 200000) == 0);
  }
}

TEST_CASE("plan: a table of batches has every way, each of them feasible" *
          doctest::test_suite("host")) {
  const auto cpu = open_backend("cpu");
  const Planner planner({.make = resnet_example().make, .settings = {.batch = 8, .accumulate = 4}},
                        *cpu);
  const uint64_t bytes = 24 << 20;
  std::vector<FitRow> found;
  const auto rows =
      fit(planner, bytes, {.on_row = [&](const FitRow& row) { found.push_back(row); }});
  const auto batch = [&](DType dtype, std::string_view mode, uint32_t accumulate) -> int64_t {
    for (const FitRow& row : found)
      if (row.settings.dtype == dtype && row.mode == mode && row.settings.accumulate == accumulate)
        return row.settings.batch;
    return -1;
  };
  for (const FitRow& row : rows) {
    CHECK(row.forecast.memory.peak <= bytes);
    CHECK(row.forecast.memory.peak_reserved <= bytes);
    CAPTURE(row.mode);
    if (row.mode.starts_with("plain")) CHECK(row.forecast.recompute_share() == 0);
    CHECK(row.cost > 0.999);
    CHECK((row.cost > 1.001) == !row.mode.starts_with("plain"));
  }
  for (const uint32_t accumulate : {1u, 4u}) {
    CHECK(batch(DType::f16, "plain", accumulate) > batch(DType::f32, "plain", accumulate));
    CHECK(batch(DType::f32, "block checkpoint", accumulate) >
          batch(DType::f32, "plain", accumulate));
    CHECK(batch(DType::f32, "budget, up to 1.33x", accumulate) >
          batch(DType::f32, "plain", accumulate));
  }
  CHECK(fit_json(rows).size() == rows.size());
}

TEST_CASE("plan: savings add up to the step's peak" * doctest::test_suite("programs")) {
  on_each_device([] {
    const StepSettings settings{
        .dtype = DType::f16, .batch = 4, .accumulate = 3, .checkpoint = "block"};
    for (const Example& example : {resnet_example(), pretrain()}) {
      const Planner planner({.make = example.make});
      const auto savings = attribute_savings(planner, settings);
      REQUIRE(savings.size() == 6);
      CHECK(savings.back().peak == planner.forecast(settings).memory.peak);
      int64_t left = static_cast<int64_t>(savings[0].peak);
      for (const auto& row : savings_json(savings)) left -= row.at("saved").get<int64_t>();
      CHECK(left == static_cast<int64_t>(savings.back().peak));
      // Accumulation holds gradients during the forward, which are more than these small batches
      // spare.
      for (size_t i = 1; i + 1 < savings.size(); ++i)
        CHECK_MESSAGE(savings[i].peak <= savings[i - 1].peak, savings[i].technique);
    }
  });
}

TEST_CASE("plan: what an out-of-memory error suggests fits" * doctest::test_suite("host")) {
  {
    set_default_device(open_backend("cpu"));
    const Example example = resnet_example();
    // No smaller batch divides 31, so its remedy takes a few samples more.
    for (const int64_t batch : {32, 31}) {
      const StepSettings settings{.dtype = DType::f32, .batch = batch};
      const Planner planner({.make = example.make});
      const uint64_t limit = planner.forecast(settings).memory.peak * 6 / 10;
      CHECK_THROWS_AS(real_run(example, settings, limit), OutOfMemory);
      const auto remedies = find_remedies(planner, settings, limit);
      CHECK(remedies.size() >= 2);
      for (const Choice& remedy : remedies) {
        INFO(remedy.options);
        const int64_t samples = remedy.settings.batch * remedy.settings.accumulate;
        CHECK(samples >= batch);
        CHECK(samples < batch + remedy.settings.accumulate);
        const MemoryReport real = real_run(example, remedy.settings, limit);
        CHECK(real.peak == remedy.forecast.memory.peak);
        CHECK(real.peak_reserved <= limit);
      }
    }
  }
}

TEST_CASE("plan: an error of a run ends with what would fit, or with that nothing does" *
          doctest::test_suite("host")) {
  const Example example = resnet_example();
  const auto cpu = open_backend("cpu");
  const uint64_t peak = Planner({.make = example.make}, *cpu)
                            .forecast({.dtype = DType::f32, .batch = 64})
                            .memory.peak;
  for (const uint64_t limit : {peak * 7 / 10, uint64_t{1} << 20}) {
    set_default_device(open_backend("cpu"), limit);
    PlannedRun run(example.program({.dtype = DType::f32, .batch = 64}));
    const auto train = [&] { example.make(run.settings())->dry_step({}); };
    const char* expected =
        limit > (uint64_t{1} << 20) ? "dtype f16" : "Nothing that was tried fits";
    CHECK_THROWS_WITH_AS(run.guard(train), doctest::Contains(expected), OutOfMemory);
    CHECK(default_device()->live() == 0);
  }
}

TEST_CASE("plan: a trace holds the last update" * doctest::test_suite("host")) {
  const auto cpu = open_backend("cpu");
  const Forecast forecast =
      Planner({.make = mnist().make}, *cpu)
          .forecast({.dtype = DType::f16, .batch = 2, .accumulate = 3}, {.trace = true});
  REQUIRE(forecast.trace.has_value());
  CHECK(forecast.trace->steps.size() == 3);
  CHECK(forecast.allocations > 0);
  CHECK(forecast.samples == 6);
  uint64_t calls = 0;
  for (const Work& work : forecast.work) calls += work.calls;
  CHECK(forecast.trace->calls.size() == calls);
}

}  // namespace rw::test
