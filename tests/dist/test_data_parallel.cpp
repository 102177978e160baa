// Ranks have the same bits as one process that accumulates their micro-batches.
#include <atomic>
#include <chrono>
#include <thread>

#include "dist/gradient_sums.h"
#include "dist/world/dry_ranks.h"
#include "dist/world/rank_watch.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "tests/dist/rank_models.h"
#include "tests/fixtures/accumulation_fixture.h"
#include "tests/fixtures/guard_backend.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/rank_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

using Overflow = Accumulate::Overflow;

TEST_CASE("data parallel: a ResNet on ranks has the bits of one process") {
  on_each_device([] {
    for (const int ranks : {1, 2, 3, 4}) {
      check_ranks(maker<SmallResNet>(), {.ranks = ranks, .micro_batches = 2 * ranks});
      check_ranks(maker<SmallResNet>(),
                  {.ranks = ranks, .micro_batches = 2 * ranks, .is_exact = true});
    }
    // One of the windows is not full, and a rank has no last micro-batch.
    check_ranks(maker<SmallResNet>(), {.ranks = 3, .each = 2, .micro_batches = 11});
    for (const int blocks : {0, 1})
      for (const bool exact : {false, true})
        check_ranks(maker<SmallResNet>({.blocks = blocks, .stages = 1 - blocks}),
                    {.ranks = 2, .micro_batches = 4, .is_exact = exact});
  });
}

// Words are read twice: gradients of a micro-batch are whole before they are added, as if each were
// judged.
TEST_CASE("data parallel: a BERT with dropout on ranks has the bits of one process") {
  on_each_device([] {
    for (const int ranks : {1, 2, 3, 4})
      for (const int blocks : {0, 1})
        check_ranks(
            maker<SmallBert>(
                {.blocks = blocks, .overflow = Overflow::voids_micro_batch, .max_norm = 0.1f}),
            {.ranks = ranks, .micro_batches = 3 * ranks});
    check_ranks(maker<SmallBert>({.overflow = Overflow::voids_micro_batch}),
                {.ranks = 2, .each = 3, .micro_batches = 9});
  });
}

TEST_CASE("data parallel: an overflow on one rank is one on all" * doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const int64_t at : {0, 1, 4, 5})
    for (const Overflow overflow : {Overflow::voids_window, Overflow::voids_micro_batch}) {
      CAPTURE(at);
      const NetOptions options{.overflow = overflow, .poisoned = at, .max_norm = 0.5f};
      const RankTest test{.ranks = 3, .micro_batches = 9};
      check_ranks(maker<SmallResNet>(options), test);
      const RankResult one = in_ranks(maker<SmallResNet>(options), test)[1];
      const bool voids = overflow == Overflow::voids_micro_batch;
      CHECK(one.skipped == (voids ? 0 : 1));
      CHECK(one.voided == (voids ? 1 : 0));
    }
}

// Each rank has a device and a budget of its own.
TEST_CASE_FIXTURE(CpuDevice, "data parallel: under a memory budget" * doctest::test_suite("host")) {
  const auto trained = [&](bool evicts) {
    return in_ranks(
        [&](uint32_t n) -> std::unique_ptr<Trainee> {
          struct OwnDevice : Trainee {
            OwnDevice(uint32_t n, const NetOptions& o)
                : device(Device::create(open_backend("reference"))), scope(device), net(n, o) {}
            Accumulate& optimizer() override { return net.optimizer(); }
            MicroBatch micro_batch(int64_t i) override { return net.micro_batch(i); }
            std::vector<Tensor> tensors() override { return net.tensors(); }
            std::shared_ptr<Device> device;
            DeviceScope scope;
            SmallResNet net;
          };
          return std::make_unique<OwnDevice>(n, NetOptions{.evicts = evicts});
        },
        {.ranks = 2, .micro_batches = 6});
  };
  CHECK(trained(true) == trained(false));
  CHECK(trained(false)[0] ==
        in_one_process(maker<SmallResNet>(), {.ranks = 2, .micro_batches = 6}));
}

TEST_CASE("data parallel: every optimizer, on random models and windows" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const OptimizerMaker& optimizer : optimizer_makers())
    for (const bool shards : {false, true})
      for (uint64_t seed = 301; seed <= 303; ++seed) {
        CAPTURE(optimizer.name);
        CAPTURE(shards);
        DataRandom random(seed, 3);
        check_ranks([&](uint32_t n) { return std::make_unique<RandomTrainee>(seed, optimizer, n); },
                    {.ranks = static_cast<int>(between(random, 2, 4)),
                     .each = static_cast<uint32_t>(between(random, 1, 2)),
                     .micro_batches = between(random, 8, 13),
                     .shards = shards && optimizer.name.find("host memory") == std::string::npos});
      }
}

// Moments and sums of gradients are in parts; clipping, overflows and windows work as usual.
TEST_CASE("data parallel: states that ranks keep in parts" * doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const int ranks : {1, 2, 3, 4}) {
    check_ranks(maker<SmallResNet>({.max_norm = 0.5f}),
                {.ranks = ranks, .micro_batches = 2 * ranks, .shards = true});
    check_ranks(maker<SmallBert>({.blocks = 1,
                                  .overflow = Overflow::voids_micro_batch,
                                  .poisoned = ranks,
                                  .max_norm = 0.1f}),
                {.ranks = ranks, .each = 2, .micro_batches = 4 * ranks + 1, .shards = true});
  }
  // There are more ranks than parameters.
  struct One : Trainee {
    explicit One(uint32_t n) : made(Adam(in_own_shard(one_group({w}))), n) {}
    Accumulate& optimizer() override { return made; }
    MicroBatch micro_batch(int64_t i) override { return {loss_with(w, {1, float(i)}), 1}; }
    std::vector<Tensor> tensors() override { return {w}; }
    Tensor w = parameter({1, 2}, "w");
    Accumulate made;
  };
  check_ranks([](uint32_t n) { return std::make_unique<One>(n); },
              {.ranks = 3, .micro_batches = 6, .shards = true});
}

// A parameter whose first gradients come late, on one rank, has its own count of updates on all.
TEST_CASE("data parallel: each parameter has its own count of updates" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  struct Late : Trainee {
    explicit Late(uint32_t n)
        : made(Adam(in_own_shard(one_group({early, late})), {.lr = 0.1f}), n) {}
    Accumulate& optimizer() override { return made; }
    MicroBatch micro_batch(int64_t i) override {
      Tensor loss = loss_with(early, {1, float(i)});
      if (i >= 8 && i % 2 == 1) loss = loss + loss_with(late, {2, 3 - float(i), 1});
      return {loss, 1};
    }
    std::vector<Tensor> tensors() override { return {early, late}; }
    Tensor early = parameter({1, 2}, "early"), late = parameter({1, 2, 3}, "late");
    Accumulate made;
  };
  const MakeTrainee make = [](uint32_t n) { return std::make_unique<Late>(n); };
  for (const bool shards : {false, true}) {
    const RankTest test{.ranks = 2, .micro_batches = 12, .shards = shards};
    check_ranks(make, test);
    const RankResult one = in_one_process(make, test);
    CHECK(one.state.at("control.missed.late") == Values{4, 0});
    // Two steps of about the learning rate, whatever the others have had.
    CHECK(one.tensors[1][0] == doctest::Approx(1 - 0.2).epsilon(1e-3));
  }
}

// Each rank runs on a device of its own, and a dry run predicts each of them.
TEST_CASE_FIXTURE(CpuDevice, "data parallel: dry runs know what each rank needs" *
                                 doctest::test_suite("host")) {
  const auto train = [](Communicator& ranks, bool shards) {
    own_shard.reset();
    if (shards) own_shard = Shard{ranks.rank(), ranks.size()};
    SmallBert bert(2, {});
    DataParallel parallel(bert.optimizer(), ranks);
    for (int64_t i = 0; i < 6; ++i) {
      const MicroBatch one = bert.micro_batch(i);
      bert.optimizer().backward(one.loss, one.weight);
      bert.optimizer().step();
      bert.optimizer().zero_grad();
    }
  };
  uint64_t bytes[2] = {};
  for (const bool shards : {false, true}) {
    uint64_t optimizer_bytes = 0;
    run_ranks(3, [&](Communicator& ranks) {
      const auto device = Device::create(open_backend("reference"));
      const DeviceScope scope(device);
      train(ranks, shards);
      const MemoryReport real = device->memory_report();
      const MemoryReport predicted = dry_run(open_backend("dry:reference"), [&] {
                                       DryRanks dry(ranks.rank(), ranks.size());
                                       train(dry, shards);
                                     }).memory;
      CHECK(real.peak == predicted.peak);
      CHECK(real.peak_by_purpose == predicted.peak_by_purpose);
      if (ranks.rank() == 0)
        optimizer_bytes = real.peak_by_purpose[static_cast<size_t>(Purpose::optimizer)];
    });
    bytes[shards] = optimizer_bytes;
  }
  CHECK(2 * bytes[true] < bytes[false]);
}

TEST_CASE_FIXTURE(CpuDevice, "data parallel: messages of any size" * doctest::test_suite("host")) {
  const auto sums = [](int64_t bucket_bytes) {
    std::vector<Values> all(3);
    run_ranks(3, [&](Communicator& ranks) {
      SmallResNet net(1, {});
      GradientSums sums(ranks, net.optimizer().parameters(), {.bucket_bytes = bucket_bytes});
      sums.begin();
      for (int round = 0; round < 2; ++round) {
        net.optimizer().zero_grad();
        net.micro_batch(3 * round + ranks.rank()).loss.backward();
        sums.end_pass();
        sums.add({true, round == 0, true});
      }
      sums.finish();
      Values& own = all[static_cast<size_t>(ranks.rank())];
      for (const Tensor& t : net.optimizer().groups()[0].parameters)
        for (const float v : t.grad().to_vector()) own.push_back(v);
    });
    CHECK(all[0] == all[1]);
    CHECK(all[0] == all[2]);
    return all[0];
  };
  const Values whole = sums(16 << 20);
  for (const int64_t bytes : {1, 40, 4000, 100000}) CHECK(sums(bytes) == whole);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "data parallel: what ranks must not do" * doctest::test_suite("host")) {
  const auto message = [](const std::function<void(Communicator&)>& body) {
    return message_of<Error>([&] { run_ranks(2, body); });
  };
  const auto adam = [](uint32_t n) { return Accumulate(Adam({parameter({1, 2}, "w")}), n); };
  // Ranks with other values, other shapes, or other parameters.
  CHECK(contains(
      message([](Communicator& ranks) {
        Accumulate own(Adam({parameter({1}, "v"), parameter({1, float(ranks.rank())}, "w")}), 1);
        DataParallel parallel(own, ranks);
      }),
      "[ranks] all ranks must have the same, got 'w: f32"));
  CHECK(contains(message([&](Communicator& ranks) {
                   check_alike(ranks, {{"lr", "0.1"}, {"batch", ranks.rank() ? "8" : "16"}});
                 }),
                 "got 'batch: 16' on rank 0 and 'batch: 8' on rank 1"));
  CHECK(contains(message([&](Communicator& ranks) {
                   check_alike(ranks, std::vector<Claim>(ranks.rank() ? 1 : 2, {"a", "1"}));
                 }),
                 "'a: 1' on rank 0 and 'nothing more' on rank 1"));
  CHECK(contains(message([&](Communicator& ranks) {
                   Accumulate own = adam(2);
                   own.set_buffer(DType::bf16);
                   DataParallel parallel(own, ranks);
                 }),
                 "[accumulate] sums that ranks share must be f32, got a buffer of bf16"));
  CHECK(contains(message([&](Communicator& ranks) {
                   Accumulate own = adam(2);
                   DataParallel parallel(own, ranks);
                   own.backward(loss_with(own.groups()[0].parameters[0], {1, 1}));
                   own.step();
                   own.state();
                 }),
                 "windows that ranks share can be saved only between them, got 1 of 2"));
  CHECK(contains(message([&](Communicator& ranks) {
                   Accumulate own = adam(1);
                   DataParallel parallel(own, ranks);
                   own.run_together([](uint32_t) { return MicroBatch{}; });
                 }),
                 "must be run by backward() and step()"));
  // Ranks load states in parts: those of the rank, with ranks that have the others.
  const auto sharded = [](const Shard& shard) {
    return Accumulate(Adam(shard_states({parameter({1, 2}, "w"), parameter({3}, "v")}, shard)), 1);
  };
  CHECK(contains(message([&](Communicator& ranks) {
                   Accumulate own = sharded({0, 2});
                   DataParallel parallel(own, ranks);
                 }),
                 "states must be sharded for rank 1 of 2, got 0 of 2"));
  CHECK(contains(message_of<AutogradError>([&] {
                   Accumulate alone = sharded({0, 2});
                   alone.backward(loss_with(alone.groups()[0].parameters[0], {1, 1}));
                   alone.step();
                 }),
                 "states that ranks keep in parts need Accumulate and DataParallel"));
  CHECK_THROWS_AS(sharded({2, 2}), ValueError);
  CHECK_THROWS_AS(Adam(offload_states(shard_states({parameter({1}, "w")}, {0, 2}))), ValueError);
  CHECK_THROWS_AS(FusedBackward(Adam(shard_states({parameter({1}, "w")}, {0, 2}))), AutogradError);
  CHECK_THROWS_AS(DryRanks(2, 2), ValueError);
  // A rank that fails makes the others fail.
  CHECK(contains(message([&](Communicator& ranks) {
                   if (ranks.rank() == 1)
                     fail<FileError>("test", "the second rank fails, got {}", 1);
                   gather(ranks, 1);
                 }),
                 "[test] the second rank fails"));
  CHECK_THROWS_AS(run_ranks(0, [](Communicator&) {}), ValueError);
}

TEST_CASE_FIXTURE(CpuDevice, "data parallel: ranks that would drift apart are refused at once" *
                                 doctest::test_suite("host")) {
  // The cpu's kernels under the name of another driver.
  class OtherDriver : public GuardBackend {
   public:
    OtherDriver() : GuardBackend(open_backend("reference"), false), info_(GuardBackend::info()) {
      info_.name = "Card";
      info_.driver = "other 2.0";
    }
    const DeviceInfo& info() const override { return info_; }

   private:
    DeviceInfo info_;
  };
  const auto refusal = [](const std::function<void(Accumulate&, DataParallelOptions&)>& differ,
                          bool has_other_device = false) {
    return message_of<RankError>([&] {
      run_ranks(2, [&](Communicator& ranks) {
        const bool is_other = ranks.rank() == 1;
        const DeviceScope scope(has_other_device && is_other
                                    ? Device::create(std::make_unique<OtherDriver>())
                                    : default_device());
        Accumulate own(Adam({parameter({1, 2}, "w")}), 2);
        DataParallelOptions options;
        if (is_other) differ(own, options);
        DataParallel parallel(own, ranks, options);
      });
    });
  };
  const auto nothing = [](Accumulate&, DataParallelOptions&) {};
  CHECK(refusal(nothing) == "nothing was thrown");
  const DeviceInfo& here = default_device()->info();
  CHECK(
      refusal(nothing, true) ==
      fmt::format(
          "[ranks] all ranks must have the same, got 'the device: reference {} ({})' on rank 0 and "
          "'the device: reference Card (other 2.0)' on rank 1; devices and drivers of other "
          "kinds round differently: give all ranks one kind",
          here.name, here.driver));
  CHECK(contains(refusal([](Accumulate& own, auto&) { own.set_micro_batches(3); }),
                 "'micro-batches per window: 2' on rank 0 and 'micro-batches per window: 3'"));
  CHECK(contains(refusal([](Accumulate& own, auto&) {
                   own.set_overflow(Accumulate::Overflow::voids_micro_batch);
                 }),
                 "'what an overflow voids: the window' on rank 0 and"));
  CHECK(contains(refusal([](Accumulate& own, auto&) { own.set_scaler(LossScaler::fixed(8)); }),
                 "'the loss scale: none' on rank 0 and 'the loss scale: fixed:8'"));
  CHECK(contains(refusal([](Accumulate&, auto& options) { options.transport = DType::bf16; }),
                 "'transport: f32' on rank 0 and 'transport: bf16'"));
  CHECK(contains(refusal([](Accumulate&, auto& options) { options.exact_batch_norm = true; }),
                 "'exact_batch_norm: false' on rank 0"));
}

TEST_CASE("data parallel: ranks that end as they should have not died" *
          doctest::test_suite("host")) {
  std::atomic<int> dead = 0;
  for (int i = 0; i < 20; ++i)
    run_ranks(3, [&](Communicator& ranks) {
      const RankWatch watch(ranks, [&](int) { ++dead; });
      if (ranks.rank() == i % 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  CHECK(dead == 0);
}

TEST_CASE_FIXTURE(CpuDevice, "data parallel: the messages of ranks" * doctest::test_suite("host")) {
  run_ranks(3, [](Communicator& ranks) {
    const int rank = ranks.rank();
    CHECK(gather(ranks, 10 * rank) == std::vector<int>{0, 10, 20});
    CHECK(gather_texts(ranks, std::string(static_cast<size_t>(rank), 'x')) ==
          std::vector<std::string>{"", "x", "xx"});
    CHECK(sum_over(ranks, rank) == 3);
    const std::vector<int> to = {rank, rank + 10, rank + 20};
    std::vector<int> from(3);
    ranks.all_to_all(std::as_bytes(std::span(to)), std::as_writable_bytes(std::span(from)));
    CHECK(from == std::vector<int>{10 * rank, 10 * rank + 1, 10 * rank + 2});
    // Rank r gets r bytes from each rank, and gives as many to all.
    const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
    const std::vector<size_t> sizes = {0, 1, 2};
    std::string parts(3 * static_cast<size_t>(rank), ' '), gathered(3, ' ');
    ranks.all_to_all(bytes(std::string(1, char('a' + rank)) + std::string(2, char('A' + rank))),
                     sizes, std::as_writable_bytes(std::span(parts)));
    CHECK(parts == std::vector<std::string>{"", "abc", "AABBCC"}[static_cast<size_t>(rank)]);
    ranks.all_gather(bytes(std::string(static_cast<size_t>(rank), char('a' + rank))), sizes,
                     std::as_writable_bytes(std::span(gathered)));
    CHECK(gathered == "bcc");
    std::vector<int> all = {rank};
    ranks.broadcast(std::as_writable_bytes(std::span(all)), 1);
    CHECK(all[0] == 1);
  });
  CHECK(world().size() == 1);
  CHECK(gather(world(), 5) == std::vector<int>{5});
}
