// Micro-batches side by side: BatchNorm over all of them.
#include <cmath>

#include "core/autograd/boundaries.h"
#include "core/autograd/checkpoint.h"
#include "models/resnet.h"
#include "ops/layout/indexing.h"
#include "ops/lockstep.h"
#include "ops/losses/losses.h"
#include "ops/statistics.h"
#include "optim/accumulation/accumulate.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

struct Data {
  Tensor images, labels;

  explicit Data(int64_t n, int64_t side = 8) {
    manual_seed(2);
    images = randn({n, side, side, 3}, 0.5f, 2);
    std::vector<int32_t> classes;
    for (int64_t i = 0; i < n; ++i) classes.push_back(static_cast<int32_t>(i * 7 % 10));
    labels = tensor(classes, {n});
  }
  Data part(int64_t begin, int64_t end) const {
    Data d = *this;
    d.images = contiguous(slice(images, 0, begin, end));
    d.labels = contiguous(slice(labels, 0, begin, end));
    return d;
  }
};

// The results of training: losses, parameters, running statistics.
struct TrainedResNet {
  std::vector<Values> tensors;
  std::vector<Values> momenta;  // after one step: the gradients
  Values losses;
};

struct LockstepOptions {
  std::vector<int64_t> parts;  // samples of each part; one part: the whole batch, in the plain way
  int blocks = 0, stages = 0;  // of a segment
  int steps = 2;
  int depth = 8;
  // Otherwise one part runs after another, and BatchNorm normalises over each.
  bool is_together = true;
};

TrainedResNet train_in_parts(const LockstepOptions& how, const Data& data) {
  manual_seed(9);
  ResNet model(resnet_cifar(how.depth));
  model.set_checkpoint(how.blocks);
  model.set_stage_checkpoint(how.stages);
  TrainedResNet result;
  const auto count = static_cast<uint32_t>(how.parts.size());
  Accumulate sgd(SGD(model.parameters(), {.lr = 0.05f, .momentum = 0.9f}), count);
  std::vector<int64_t> begin = {0};
  for (const int64_t n : how.parts) begin.push_back(begin.back() + n);
  for (int step = 0; step < how.steps; ++step) {
    std::vector<Tensor> losses(count);
    const auto forward = [&](uint32_t i) {
      const Data d = data.part(begin[i], begin[i + 1]);
      const Tensor loss = cross_entropy(model(d.images), d.labels);
      losses[i] = loss.detach();
      return MicroBatch{loss, static_cast<float>(how.parts[i])};
    };
    for (uint32_t i = 0; i < count && (count == 1 || !how.is_together); ++i) {
      const MicroBatch part = forward(i);
      sgd.backward(part.loss, part.weight);
      sgd.step();
    }
    if (count > 1 && how.is_together) CHECK(sgd.run_together(forward));
    double sum = 0;
    for (uint32_t i = 0; i < count; ++i)
      sum += double{losses[i].item()} * static_cast<double>(how.parts[i]);
    result.losses.push_back(static_cast<float>(sum / static_cast<double>(begin.back())));
  }
  for (const auto& [name, t] : model.named_parameters()) result.tensors.push_back(t.to_vector());
  for (const auto& [name, t] : model.named_buffers()) result.tensors.push_back(t.to_vector());
  for (const auto& [name, t] : sgd.state())
    if (name != "control") result.momenta.push_back(t.to_vector());
  return result;
}

// Returns the distance of all tensors together, relative to the length of the second.
double distance(const std::vector<Values>& a, const std::vector<Values>& b) {
  double apart = 0, length = 0;
  REQUIRE(a.size() == b.size());
  for (size_t k = 0; k < a.size(); ++k)
    for (size_t i = 0; i < a[k].size(); ++i) {
      apart += std::pow(double{a[k][i]} - b[k][i], 2);
      length += std::pow(double{b[k][i]}, 2);
    }
  return std::sqrt(apart / length);
}

}  // namespace

TEST_CASE("lockstep: accumulated micro-batches with batch norm are the large batch") {
  on_each_device([] {
    const Data data(24);
    const TrainedResNet whole = train_in_parts({{24}}, data);
    for (const std::vector<int64_t>& parts : {std::vector<int64_t>(4, 6), {5, 1, 10, 8}}) {
      const TrainedResNet together = train_in_parts({parts}, data);
      CHECK(distance(together.tensors, whole.tensors) < 1e-5);
      for (size_t i = 0; i < whole.losses.size(); ++i)
        CHECK(together.losses[i] == doctest::Approx(whole.losses[i]).epsilon(2e-5));
      // A second run, and runs in segments, have the same bits.
      CHECK(train_in_parts({parts}, data).tensors == together.tensors);
      CHECK(train_in_parts({.parts = parts, .blocks = 1}, data).tensors == together.tensors);
      CHECK(train_in_parts({.parts = parts, .stages = 1}, data).tensors == together.tensors);
      const HostBoundaries on_host;
      for (const int blocks : {0, 1})
        CHECK(train_in_parts({parts, blocks}, data).tensors == together.tensors);
    }
  });
}

// This takes minutes: `rewind_tests -tc='lockstep: the table' --no-skip`.
TEST_CASE("lockstep: the table of docs/accumulation.md" * doctest::skip()) {
  on_each_device([] {
    if (default_device()->info().backend == "reference") return;
    const Data data(128, 32);
    for (const int depth : {20, 56}) {
      const LockstepOptions whole{.parts = {128}, .steps = 1, .depth = depth};
      const LockstepOptions parts{
          .parts = std::vector<int64_t>(8, 16), .blocks = 1, .steps = 1, .depth = depth};
      const TrainedResNet large = train_in_parts(whole, data),
                          together = train_in_parts(parts, data);
      // The same samples in another order show the effect of rounding alone on these gradients.
      Data turned = data;
      turned.images = flip(data.images, {0});
      turned.labels = flip(data.labels, {0});
      const TrainedResNet other = train_in_parts(whole, turned);
      const double by_parts = distance(together.momenta, large.momenta);
      const double by_rounding = distance(other.momenta, large.momenta);
      MESSAGE("ResNet-" << depth << ": loss " << large.losses[0] << " and " << together.losses[0]
                        << ", gradients apart by " << by_parts << " (samples in another order: "
                        << by_rounding << "), parameters and running statistics by "
                        << distance(together.tensors, large.tensors));
      CHECK(together.losses[0] == doctest::Approx(large.losses[0]).epsilon(1e-5));
      CHECK(by_parts < 3 * by_rounding + 1e-5);
      CHECK(distance(together.tensors, large.tensors) < 1e-5);
      const HostBoundaries on_host;
      CHECK(train_in_parts(parts, data).tensors == together.tensors);
    }
  });
}

TEST_CASE("lockstep: one part is the plain step, bit for bit") {
  on_each_device([] {
    const auto gradients = [](bool together) {
      manual_seed(4);
      ResNet model(resnet_cifar(8));
      Accumulate sgd(SGD(model.parameters(), {.lr = 0.1f}), 1);
      const Data data(6);
      const auto forward = [&](uint32_t) {
        return MicroBatch{cross_entropy(model(data.images), data.labels)};
      };
      if (together) {
        sgd.run_together(forward);
      } else {
        sgd.backward(forward(0).loss);
        sgd.step();
      }
      std::vector<Values> all;
      for (const auto& [name, t] : model.named_parameters()) all.push_back(t.to_vector());
      for (const auto& [name, t] : model.named_buffers()) all.push_back(t.to_vector());
      return all;
    };
    CHECK(gradients(true) == gradients(false));
  });
}

TEST_CASE_FIXTURE(CpuDevice, "lockstep: memory is predicted to the byte, and segments lower it" *
                                 doctest::test_suite("host")) {
  const auto steps = [](int blocks) {
    return [blocks] {
      const Data data(16);
      train_in_parts({.parts = {4, 4, 4, 4}, .blocks = blocks, .steps = 3}, data);
    };
  };
  uint64_t peaks[2];
  for (const int blocks : {0, 1}) {
    const MemoryReport predicted = dry_run(open_backend("dry:reference"), steps(blocks)).memory;
    set_default_device(open_backend("reference"));
    steps(blocks)();
    const MemoryReport real = default_device()->memory_report();
    CHECK(real.peak == predicted.peak);
    peaks[blocks] = real.peak_by_purpose[static_cast<size_t>(Purpose::activation)];
  }
  CHECK(peaks[1] < 0.7 * static_cast<double>(peaks[0]));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "lockstep: parts that wait in host memory need the device's memory of one" *
                      doctest::test_suite("host")) {
  // Every way holds the images of all parts.
  const auto steps = [](int blocks, bool is_together, bool on_host) {
    return [=] {
      const Data data(32, 16);
      const HostBoundaries scope(on_host);
      train_in_parts({.parts = std::vector<int64_t>(8, 4),
                      .blocks = blocks,
                      .steps = 3,
                      .depth = 20,
                      .is_together = is_together},
                     data);
    };
  };
  for (const int blocks : {0, 1}) {
    const auto predicted = [&](bool is_together, bool on_host) {
      return dry_run(open_backend("dry:reference"), steps(blocks, is_together, on_host)).memory;
    };
    const MemoryReport ghost = predicted(false, false), exact = predicted(true, true);
    CHECK(exact.peak <= 1.3 * static_cast<double>(ghost.peak));
    CHECK(exact.host_peak > exact.peak);
    CHECK(2 * predicted(true, false).peak > 3 * exact.peak);
    set_default_device(open_backend("reference"));
    steps(blocks, true, true)();
    const MemoryReport real = default_device()->memory_report();
    CHECK(real.peak == exact.peak);
    CHECK(real.host_peak == exact.host_peak);
    CHECK(real.host_live == 0);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "lockstep: parts that fail or differ" * doctest::test_suite("host")) {
  Lockstep four(4);
  CHECK(four.parts() == 4);
  CHECK(StatisticsScope::current() == nullptr);
  CHECK_THROWS_AS(Lockstep(0), ValueError);
  std::vector<uint32_t> order;
  four.run([&](uint32_t part) {
    order.push_back(part);
    CHECK(StatisticsScope::current()->rows(part + 1) == 10);
    order.push_back(part);
  });
  CHECK(order == std::vector<uint32_t>{0, 1, 2, 3, 0, 1, 2, 3});

  int unwound = 0;
  const auto fails = [&](uint32_t part) {
    struct Count {
      int& n;
      ~Count() { ++n; }
    } count{unwound};
    StatisticsScope::current()->rows(1);
    check(part != 2, "test", "part {} is wrong", part);
    StatisticsScope::current()->rows(1);
  };
  CHECK(message_of<ValueError>([&] { four.run(fails); }) == "[test] part 2 is wrong");
  CHECK(unwound == 4);

  const auto differ = [&](auto body) { return message_of<AutogradError>([&] { four.run(body); }); };
  CHECK(contains(differ([](uint32_t part) {
                   for (uint32_t i = 0; i < 2 + (part == 1); ++i)
                     StatisticsScope::current()->rows(1);
                 }),
                 "[lockstep] all parts must run the same ops"));
  CHECK(contains(differ([](uint32_t part) {
                   if (part == 3)
                     StatisticsScope::current()->sum(zeros({2, 1}));
                   else
                     StatisticsScope::current()->rows(1);
                 }),
                 "[lockstep] all parts must run the same ops"));
  CHECK(contains(differ([&](uint32_t) { Lockstep(2).run([](uint32_t) {}); }),
                 "[lockstep] parts cannot be divided again"));
  four.run([](uint32_t) {});  // the errors above left it usable

  // A window begins with its first micro-batch.
  Tensor w = parameter({1, 2});
  Accumulate sgd(SGD({w}, {.lr = 1}), 2);
  sgd.backward(sum(w));
  const auto loss = [&](uint32_t) { return MicroBatch{sum(w)}; };
  CHECK(contains(message_of<AutogradError>([&] { sgd.run_together(loss); }),
                 "[accumulate] run_together() must begin a window"));
  sgd.step();
  sgd.flush();
  CHECK_THROWS_AS(sgd.run_together(loss, 3), ValueError);
  CHECK(sgd.run_together(loss, 1));
  CHECK(w.to_vector() == Values{-1, 0});
}

}  // namespace rw::test
