// Parameters that ranks keep in parts: the bits of one process, memory, and access rules.
#include <numeric>
#include <set>

#include "core/tensor/primitives.h"
#include "dist/world/dry_ranks.h"
#include "optim/ema.h"
#include "optim/lookahead.h"
#include "optim/numerics/gradient_ranges.h"
#include "planner/dry_run.h"
#include "tests/dist/rank_models.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// Most of the model is one table, which spans several rows of the gradients' table. Ranks divide it
// if the optimizer's rule allows that.
struct TableTrainee : Trainee {
  TableTrainee(const OptimizerMaker& maker, uint32_t n) {
    const auto add = [&](const Shape& shape, const char* name) {
      w.push_back(tensor(some_values(static_cast<int>(shape.numel())), shape).set_requires_grad());
      w.back().impl().name = name;
    };
    add({6, 6}, "first");
    add({2400, 6}, "table");
    add({2400}, "bias");
    made = maker.accumulating(in_own_shard(one_group(w)), n);
    made->set_overflow(Accumulate::Overflow::voids_micro_batch);
    made->set_max_norm(0.5f);
  }
  Accumulate& optimizer() override { return *made; }
  MicroBatch micro_batch(int64_t i) override {
    const Tensor x = tensor(some_values(12, static_cast<int>(i)), {2, 6});
    return {mean(square(linear(tanh(matmul(x, w[0])), w[1], w[2]))), static_cast<float>(1 + i % 2)};
  }
  std::vector<Tensor> tensors() override { return w; }
  std::vector<Tensor> w;
  std::unique_ptr<Accumulate> made;
};

uint64_t peak_bytes_of(const MemoryReport& report, Purpose purpose) {
  return report.peak_by_purpose[static_cast<size_t>(purpose)];
}

}  // namespace

TEST_CASE("parameters in parts: ranks have the bits of one process") {
  on_each_device([] {
    for (const int ranks : {1, 2, 3})
      for (const bool autocast : {false, true})
        for (const int blocks : {0, 1}) {
          if (ranks != 2 && autocast != (blocks == 1)) continue;
          CAPTURE(ranks);
          CAPTURE(autocast);
          check_ranks(
              maker<SmallResNet>({.blocks = blocks, .max_norm = 0.5f, .autocast = autocast}),
              {.ranks = ranks, .micro_batches = 2 * ranks, .parts = true});
          check_ranks(maker<SmallBert>({.blocks = blocks,
                                        .overflow = Accumulate::Overflow::voids_micro_batch,
                                        .max_norm = 0.1f,
                                        .autocast = autocast}),
                      {.ranks = ranks, .each = 2, .micro_batches = 4 * ranks, .parts = true});
        }
    check_ranks(maker<SmallBert>({.overflow = Accumulate::Overflow::voids_micro_batch,
                                  .autocast = true,
                                  .dtype = DType::f16}),
                {.ranks = 2, .each = 2, .micro_batches = 8, .parts = true});
    check_ranks(maker<SmallResNet>(),
                {.ranks = 2, .micro_batches = 4, .is_exact = true, .parts = true});
    check_ranks(
        maker<SmallBert>({.overflow = Accumulate::Overflow::voids_micro_batch, .poisoned = 3}),
        {.ranks = 2, .micro_batches = 8, .parts = true});
  });
}

// Most of this BERT is its table of words, and every rank has a part of it.
TEST_CASE("parameters in parts: a table that ranks divide" * doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const bool parts : {false, true}) {
    CAPTURE(parts);
    const RankTest test{
        .ranks = 3, .each = 2, .micro_batches = 12, .shards = !parts, .parts = parts};
    const auto options = [](int blocks, bool autocast) {
      return NetOptions{.blocks = blocks,
                        .overflow = Accumulate::Overflow::voids_micro_batch,
                        .max_norm = 0.1f,
                        .words = 1500,
                        .autocast = autocast};
    };
    check_ranks(maker<SmallBert>(options(0, false)), test);
    check_ranks(maker<SmallBert>(options(1, true)), test);
    NetOptions half = options(1, true);
    half.dtype = DType::f16;
    const Generator start = default_generator();
    const RankResult one = in_one_process(maker<SmallBert>(half), test);
    default_generator() = start;
    size_t divided = 0;
    for (const RankResult& rank : in_ranks(maker<SmallBert>(half), test)) {
      CHECK(rank.tensors == one.tensors);
      for (const auto& [name, values] : rank.state) {
        CHECK(values == of_whole(one.state, name));
        divided += whole_name(name) != name;
      }
    }
    CHECK(divided == (parts ? 9 : 6));  // two moments of the table each, and its masters
  }
}

TEST_CASE("parameters in parts: a table that ranks divide, by every optimizer" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const OptimizerMaker& optimizer : optimizer_makers()) {
    if (optimizer.name.find("host memory") != std::string::npos) continue;
    CAPTURE(optimizer.name);
    for (const bool parts : {false, true})
      check_ranks([&](uint32_t n) { return std::make_unique<TableTrainee>(optimizer, n); },
                  {.ranks = 3, .micro_batches = 9, .shards = !parts, .parts = parts});
  }
}

// Each rank keeps about as many of 5 rows as the others, whatever the parameters' sizes are.
TEST_CASE_FIXTURE(CpuDevice, "parameters in parts: ranks have equal parts of one table" *
                                 doctest::test_suite("host")) {
  for (const OptimizerMaker& optimizer : optimizer_makers()) {
    if (optimizer.name.find("host memory") != std::string::npos) continue;
    CAPTURE(optimizer.name);
    const bool is_whole =
        std::set<std::string>{"lamb", "adafactor", "muon"}.contains(optimizer.name);
    for (const bool parts : {false, true}) {
      CAPTURE(parts);
      std::vector<int64_t> elements;
      for (int rank = 0; rank < 3; ++rank) {
        own_shard = Shard{rank, 3, uint64_t{parts ? 2048u : 0u}};
        const TableTrainee trainee(optimizer, 1);
        own_shard.reset();
        int64_t own = 0;
        for (const FlatParameters::Slot& slot : trainee.made->parameters().slots())
          own += slot.own.size;
        elements.push_back(own);
      }
      const auto [least, most] = std::ranges::minmax(elements);
      CHECK(std::accumulate(elements.begin(), elements.end(), int64_t{0}) == 36 + 7 * 2400);
      CHECK((most - least <= row_elements(7 * 2400)) == !is_whole);
    }
  }
}

TEST_CASE("parameters in parts: every optimizer" * doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const OptimizerMaker& optimizer : optimizer_makers()) {
    if (optimizer.name.find("host memory") != std::string::npos) continue;
    CAPTURE(optimizer.name);
    check_ranks([&](uint32_t n) { return std::make_unique<RandomTrainee>(302, optimizer, n); },
                {.ranks = 3, .each = 2, .micro_batches = 12, .parts = true});
  }
}

// Each rank has a chain of wide layers on a device of its own, and a dry run predicts each.
TEST_CASE_FIXTURE(CpuDevice, "parameters in parts: memory, as dry runs know it" *
                                 doctest::test_suite("host")) {
  constexpr int64_t width = 64, layers = 12, layer_bytes = width * width * 4;
  const auto train = [](Communicator& ranks, bool parts, DType dtype) {
    std::vector<Tensor> w;
    for (int64_t i = 0; i < layers; ++i) {
      w.push_back(full({width, width}, 0.01f, dtype));
      w.back().set_requires_grad();
    }
    const Shard shard{ranks.rank(), ranks.size(), parts ? uint64_t{layer_bytes} : 0};
    Accumulate optimizer(SGD(shard_states(w, shard), {.lr = 0.1f, .momentum = 0.9f}), 2);
    DataParallel parallel(optimizer, ranks,
                          {.bucket_bytes = layer_bytes, .gathered_bytes = 2 * layer_bytes});
    default_device()->reset_peak();
    for (int step = 0; step < 4; ++step) {
      Tensor x = full({2, width}, 1, dtype);
      for (const Tensor& one : w) {
        const auto segment = checkpoint();
        x = matmul(x, one);
      }
      optimizer.backward(sum(x));
      optimizer.step();
      optimizer.zero_grad();
    }
    return default_device()->memory_report();  // called before all parameters have come
  };
  for (const int count : {2, 3, 4})
    for (const DType dtype : {DType::f32, DType::f16})
      run_ranks(count, [&](Communicator& ranks) {
        CAPTURE(count);
        const auto peak = [&](bool parts) {
          const auto device = Device::create(open_backend("reference"));
          const DeviceScope scope(device);
          return train(ranks, parts, dtype);
        };
        const MemoryReport whole = peak(false), real = peak(true);
        MemoryReport predicted;
        dry_run(open_backend("dry:reference"), [&] {
          DryRanks dry(ranks.rank(), ranks.size());
          predicted = train(dry, true, dtype);
        });
        CHECK(real.peak == predicted.peak);
        CHECK(real.peak_by_purpose == predicted.peak_by_purpose);
        CHECK(real.host_peak == predicted.host_peak);
        // The own part, and two gathered layers.
        const int64_t size = layer_bytes * static_cast<int64_t>(size_of(dtype)) / 4;
        CHECK(peak_bytes_of(whole, Purpose::parameter) == layers * size);
        CHECK(peak_bytes_of(real, Purpose::parameter) <=
              static_cast<uint64_t>(layers / count * size + 2 * layer_bytes));
        CHECK(peak_bytes_of(real, Purpose::parameter) >=
              static_cast<uint64_t>(layers / count * size));
        CHECK(real.peak < whole.peak);
        // Masters of 16-bit parameters and moments belong to the owner.
        CHECK(peak_bytes_of(real, Purpose::optimizer) <=
              static_cast<uint64_t>(layers / count * layer_bytes * (dtype == DType::f32 ? 1 : 2)) +
                  (8 << 10));
      });
}

// Micro-batches of windows of any length are steps that repeat: slabs that were gathered for one
// are gone before the next.
TEST_CASE_FIXTURE(CpuDevice,
                  "parameters in parts: steps are laid out" * doctest::test_suite("host")) {
  for (const uint32_t each : {1u, 2u, 3u})
    for (const int blocks : {0, 1})
      for (int rank = 0; rank < 3; ++rank) {
        CAPTURE(each);
        CAPTURE(rank);
        MemoryReport report;
        dry_run(open_backend("dry:reference"), [&] {
          DryRanks ranks(rank, 3);
          manual_seed(9);
          ResNet model(resnet_cifar(8));
          model.set_checkpoint(blocks);
          Accumulate optimizer(SGD(shard_parameters(model.parameters(), {rank, 3, 1 << 16}),
                                   {.lr = 0.1f, .momentum = 0.9f}),
                               each);
          const DataParallel parallel(optimizer, ranks, {.gathered_bytes = 1 << 17});
          for (uint32_t i = 0; i < 6 * each; ++i) {
            if (i == 3 * each) default_device()->reset_peak();
            const Tensor loss = mean(square(model(zeros({32, 32, 32, 3}))));
            optimizer.backward(loss);
            optimizer.step();
            optimizer.zero_grad();
          }
          report = default_device()->memory_report();
        });
        CHECK(report.plan_misses == 0);
        CHECK(report.followed_steps >= 3 * each);
        CHECK(static_cast<double>(report.peak_reserved) <= 1.03 * static_cast<double>(report.peak));
      }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "parameters in parts: who may read what" * doctest::test_suite("host")) {
  for (const int64_t words : {40, 700})
    for (const DType dtype : {DType::f32, DType::f16})
      run_ranks(2, [&](Communicator& ranks) {
        own_shard = Shard{ranks.rank(), ranks.size(), 2048};
        SmallBert bert(1, {.words = words, .dtype = dtype});
        own_shard.reset();
        Accumulate& optimizer = bert.optimizer();
        const std::vector<Tensor> parameters = bert.tensors();
        std::vector<Values> first;
        for (const Tensor& p : parameters) first.push_back(p.to_vector());
        std::optional<DataParallel> parallel(std::in_place, optimizer, ranks,
                                             DataParallelOptions{.gathered_bytes = 4096});
        const auto away = [&] {
          size_t count = 0;
          for (const Tensor& p : parameters) count += p.impl().storage->is_swapped_out();
          return count;
        };
        CHECK((away() > 0 && away() < parameters.size()));
        for (const Tensor& p : parameters)
          if (p.impl().storage->is_swapped_out())
            CHECK(contains(message_of<DeviceError>([&] { p.to_vector(); }),
                           "DataParallel::gather_parameters()"));
        {
          const auto all = parallel->gather_parameters();
          CHECK(away() == 0);
          for (size_t i = 0; i < parameters.size(); ++i)
            CHECK(parameters[i].to_vector() == first[i]);
          // All ranks write to the parameters, as loading a file does; these are then the values.
          for (const Tensor& p : parameters) Tensor(p).copy_(affine(p.detach(), 2, 0));
          CHECK(contains(message_of<RankError>(
                             [&] { optimizer.backward(bert.micro_batch(ranks.rank()).loss); }),
                         "gathered parameters must be released before training continues"));
        }
        CHECK(away() > 0);
        {
          const auto all = parallel->gather_parameters();
          for (size_t i = 0; i < parameters.size(); ++i) {
            Values twice = first[i];
            for (float& v : twice) v *= 2;
            CHECK(parameters[i].to_vector() == twice);
          }
        }
        CHECK(contains(message_of<AutogradError>([&] { parallel->skip(); }),
                       "with parameters in parts every rank must run every step"));
        for (int step = 0; step < 2; ++step) {
          optimizer.backward(bert.micro_batch(ranks.rank()).loss);
          optimizer.step();
          optimizer.zero_grad();
        }
        // All ranks run a forward pass under NoGrad; after it nothing is under way.
        const NoGrad guard;
        CHECK(std::isfinite(bert.micro_batch(0).loss.item()));
        CHECK(gather(ranks, ranks.rank()) == std::vector<int>{0, 1});
        parallel.reset();
        CHECK(away() == 0);
      });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "parameters in parts: what ranks must not do" * doctest::test_suite("host")) {
  CHECK(contains(message_of<RankError>([] {
                   in_ranks(maker<SmallResNet>({.evicts = true}),
                            {.ranks = 2, .micro_batches = 4, .parts = true});
                 }),
                 "must replay alike"));
  const auto follow = [](uint64_t gathered_bytes, const auto& make) {
    own_shard = Shard{1, 2, gathered_bytes};
    SmallBert bert(1, {.words = 700});
    own_shard.reset();
    make(bert.optimizer());
  };
  const char* refused = "averages and monitors must not read parameters that ranks keep in parts";
  CHECK(contains(message_of<RankError>([&] { follow(2048, [](Accumulate& o) { Ema{o}; }); }),
                 refused));
  CHECK(contains(message_of<RankError>([&] { follow(2048, [](Accumulate& o) { Lookahead{o}; }); }),
                 refused));
  CHECK_NOTHROW(follow(0, [](Accumulate& o) { Ema{o}; }));
  CHECK(
      contains(message_of<RankError>([&] { follow(0, [](Accumulate& o) { GradientRanges{o}; }); }),
               "all gradients must be here"));
  // An update reads them all the same.
  CHECK(contains(message_of<RankError>([] {
                   run_ranks(2, [](Communicator& ranks) {
                     own_shard = Shard{ranks.rank(), ranks.size(), 2048};
                     SmallBert bert(1, {});
                     own_shard.reset();
                     DataParallel parallel(bert.optimizer(), ranks);
                     const PhaseScope phase(Phase::update);
                     for (const Tensor& p : bert.tensors()) sum(p);
                   });
                 }),
                 "averages and monitors must not read parameters that ranks keep in parts"));
}

TEST_CASE("device: storages whose memory is away") {
  on_each_device([] {
    struct Keeper : StorageKeeper {
      explicit Keeper(const Tensor& t) : values(t.to_vector()), tensor(t) {
        tensor.impl().storage->set_keeper(this);
        tensor.device().swap_out(*tensor.impl().storage);
      }
      ~Keeper() override { tensor.impl().storage->set_keeper(nullptr); }
      void need(std::span<Storage* const>) override {
        Storage& storage = *tensor.impl().storage;
        if (!storage.is_swapped_out()) return;
        ++times;
        tensor.device().swap_in(storage);
        tensor.device().restore(storage, values.data());
      }
      std::vector<float> values;
      Tensor tensor;
      int times = 0;
    };
    Tensor w = tensor({1, 2, 3, 4}, {4});
    w.set_requires_grad();
    Device& device = w.device();
    const uint64_t live = device.live();
    {
      Keeper keeper(w);
      CHECK(device.live() < live);
      CHECK_THROWS_AS(w.to_vector(), DeviceError);
      Tensor loss = sum(w * w);
      device.swap_out(*w.impl().storage);
      // Saved values are unchanged.
      loss.backward();
      CHECK(keeper.times == 2);
      CHECK(w.grad().to_vector() == std::vector<float>{2, 4, 6, 8});
      CHECK(w.to_vector() == keeper.values);
      device.swap_out(*w.impl().storage);
    }
    CHECK_THROWS_AS(w + 1, DeviceError);
    w = {};
  });
}
