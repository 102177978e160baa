// Gradients of ranks in buckets: how they are cut, sent and dropped while backward runs.
#include <numeric>
#include <thread>

#include "core/tensor/primitives.h"
#include "dist/gradient_sums.h"
#include "dist/world/dry_ranks.h"
#include "planner/dry_run.h"
#include "tests/dist/rank_models.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

std::vector<Tensor> reduced_parameters(Accumulate& optimizer) {
  return optimizer.groups()[0].parameters;
}

// The ranks' first gradients, and their sums.
struct Summed {
  std::vector<Values> gradients;  // by rank, of all parameters
  Values sums;
};

Summed sum_in_ranks(int ranks, const GradientSumsOptions& options) {
  Summed result{std::vector<Values>(static_cast<size_t>(ranks)), {}};
  run_ranks(ranks, [&](Communicator& own) {
    SmallResNet net(1, {});
    GradientSums sums(own, net.optimizer().parameters(), options);
    sums.begin();
    net.micro_batch(own.rank()).loss.backward();
    const auto values = [&] {
      Values all;
      for (const Tensor& t : reduced_parameters(net.optimizer()))
        for (const float v : t.grad().to_vector()) all.push_back(v);
      return all;
    };
    result.gradients[static_cast<size_t>(own.rank())] = values();
    sums.end_pass();
    sums.add(std::vector<bool>(static_cast<size_t>(ranks), true));
    sums.finish();
    if (own.rank() == 0) result.sums = values();
  });
  return result;
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "gradient buckets: every element once, and parts of all ranks" *
                                 doctest::test_suite("host")) {
  SmallBert bert(1, {.words = 700});  // a table of several rows
  const std::vector<FlatParameters::Slot>& slots = bert.optimizer().parameters().slots();
  std::vector<size_t> order(slots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::swap(order[1], order[7]);
  std::vector<int64_t> sizes;
  for (const FlatParameters::Slot& slot : slots) sizes.push_back(slot.parameter.numel());
  for (const bool is_divisible : {false, true})
    for (const int64_t elements : {0, 1, 8, 100, 300, 5000, 1 << 20})
      for (const int ranks : {1, 3, 5}) {
        CAPTURE(is_divisible);
        CAPTURE(elements);
        CAPTURE(ranks);
        const bool has_owners = elements % 2 == 0;
        std::vector<Ownership::Parameter> line;
        for (const int64_t size : sizes) line.push_back({size, is_divisible});
        const Ownership ownership(line, ranks);
        const std::optional<Ownership> owners =
            has_owners ? std::optional(ownership) : std::nullopt;
        std::vector<std::vector<int>> seen;
        for (const FlatParameters::Slot& slot : slots)
          seen.emplace_back(static_cast<size_t>(slot.parameter.numel()));
        int64_t all_owned = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const GradientBuckets buckets(sizes, order, owners, rank, ranks, elements);
          all_owned += buckets.owned();
          int64_t line = 0, sum = 0;
          for (const GradientBucket& bucket : buckets.all()) {
            CHECK(bucket.begin == line);
            CHECK(bucket.sum == sum);
            CHECK((bucket.size() > 0 && bucket.size() <= std::max<int64_t>(elements, 8)));
            CHECK(bucket.bounds.front() == bucket.begin);
            CHECK(bucket.bounds.back() == bucket.end);
            CHECK(std::ranges::is_sorted(bucket.bounds));
            for (const int64_t bound : bucket.bounds) CHECK((bound - bucket.begin) % 8 == 0);
            line = bucket.end;
            sum += bucket.part(rank);
            int64_t at = 0;
            buckets.each_part(bucket, [&](const GradientBuckets::Part& part) {
              CHECK(part.target == at);
              at += part.room;
              for (int64_t i = 0; i < part.size; ++i)
                ++seen[part.slot][static_cast<size_t>(part.source + i)];
              if (!has_owners) return;
              const auto owner = static_cast<size_t>(part.owner);
              const ElementRange own = ownership.part(part.slot, part.owner);
              CHECK(bucket.begin + part.target >= bucket.bounds[owner]);
              CHECK(bucket.begin + at <= bucket.bounds[owner + 1]);
              CHECK((part.source >= own.offset && part.source + part.size <= own.end()));
              if (part.owner == rank)
                CHECK(buckets.sum_of(part.slot) + part.source - own.offset ==
                      bucket.sum + bucket.begin + part.target - bucket.bounds[owner]);
            });
            CHECK(at == bucket.size());
          }
          if (rank + 1 == ranks) CHECK(all_owned == line);
        }
        for (const std::vector<int>& one : seen)
          CHECK(std::ranges::all_of(one, [&](int times) { return times == ranks; }));
      }
}

// Each micro-batch uses another part of the model, and no window uses one of the parts.
TEST_CASE("gradient buckets: ranks whose passes reach other parameters") {
  on_each_device([] {
    struct Experts : Trainee {
      explicit Experts(uint32_t n) : made(Adam(in_own_shard(one_group(w))), n) {}
      Accumulate& optimizer() override { return made; }
      MicroBatch micro_batch(int64_t i) override {
        const Values gradient(1500, static_cast<float>(i + 1));
        return {loss_with(w[static_cast<size_t>(i * i % 3)], gradient), 1};
      }
      std::vector<Tensor> tensors() override { return w; }
      std::vector<Tensor> w = {parameter(Values(1500, 1), "a"), parameter(Values(1500, 2), "b"),
                               parameter(Values(1500, 3), "c"), parameter({1, 2}, "d")};
      Accumulate made;
    };
    for (const bool shards : {false, true})
      check_ranks([](uint32_t n) { return std::make_unique<Experts>(n); },
                  {.ranks = 3, .each = 2, .micro_batches = 17, .shards = shards});
  });
}

TEST_CASE_FIXTURE(CpuDevice, "gradient buckets: gradients leave while backward runs" *
                                 doctest::test_suite("host")) {
  run_ranks(2, [](Communicator& ranks) {
    SmallResNet net(2, {});
    Accumulate& optimizer = net.optimizer();
    DataParallel parallel(optimizer, ranks, {.bucket_bytes = 4096});
    const std::vector<Tensor> parameters = reduced_parameters(optimizer);
    // In the second window, buckets have the order of backward: all but one have left before the
    // first convolution's gradient comes.
    size_t left = 0;
    const HookHandle hook =
        parameters.front().register_post_accumulate_grad_hook([&](const Tensor&) {
          left = 0;
          for (const Tensor& p : parameters) left += p.grad().defined();
        });
    int64_t elements = 0;
    for (const Tensor& p : parameters) elements += p.numel();
    for (int64_t step = 0; step < 4; ++step) {
      const MicroBatch one = net.micro_batch(2 * step + ranks.rank());
      optimizer.backward(one.loss, one.weight);
      for (const Tensor& p : parameters) CHECK(!p.grad());
      const Traffic traffic = parallel.traffic();
      // Each of two ranks keeps one half.
      CHECK(traffic.gradient_bytes >= static_cast<uint64_t>(step + 1) * 2 * elements);
      CHECK(traffic.gradient_bytes < static_cast<uint64_t>(step + 1) * 3 * elements);
      CHECK(traffic.buckets > static_cast<uint64_t>(step + 1) * 10);
      optimizer.step();
      optimizer.zero_grad();
    }
    CHECK(left <= 1);
    // Gradients that come in another way would be lost.
    const MicroBatch one = net.micro_batch(ranks.rank());
    optimizer.backward(one.loss, one.weight);
    net.micro_batch(ranks.rank()).loss.backward();
    CHECK(contains(message_of<AutogradError>([&] { optimizer.step(); }),
                   "[data_parallel] gradients must come from the optimizer's backward(loss)"));
    for (const Tensor& p : parameters) Tensor(p).set_grad({});
  });
}

// At the end of backward, all gradients would be there.
TEST_CASE_FIXTURE(CpuDevice,
                  "gradient buckets: memory, as dry runs know it" * doctest::test_suite("host")) {
  struct Wide : Trainee {
    explicit Wide(uint32_t n) {
      for (int i = 0; i < 8; ++i)
        w.push_back(parameter(Values(size_t{1} << 14, 0.01f), fmt::format("w{}", i)));
      made.emplace(SGD(in_own_shard(one_group(w)), {.lr = 0.1f}), n);
    }
    Accumulate& optimizer() override { return *made; }
    MicroBatch micro_batch(int64_t i) override {
      const Tensor x = full({1 << 14}, 1 + 0.1f * static_cast<float>(i));
      Tensor loss = sum(w[0] * x);
      for (size_t k = 1; k < w.size(); ++k) loss = loss + sum(w[k] * x);
      return {loss, 1};
    }
    std::vector<Tensor> tensors() override { return w; }
    std::vector<Tensor> w;
    std::optional<Accumulate> made;
  };
  const auto train = [](Communicator& ranks, int64_t bucket_bytes, DType transport) {
    own_shard = Shard{ranks.rank(), ranks.size()};
    Wide wide(2);
    DataParallel parallel(wide.optimizer(), ranks,
                          {.bucket_bytes = bucket_bytes, .transport = transport});
    for (int64_t i = 0; i < 6; ++i) {
      wide.optimizer().backward(wide.micro_batch(i).loss);
      wide.optimizer().step();
      wide.optimizer().zero_grad();
    }
    own_shard.reset();
  };
  for (const DType transport : {DType::f32, DType::f16})
    for (const int64_t bucket_bytes : {int64_t{1} << 16, int64_t{1} << 20}) {
      run_ranks(3, [&](Communicator& ranks) {
        const auto device = Device::create(open_backend("reference"));
        const DeviceScope scope(device);
        train(ranks, bucket_bytes, transport);
        const MemoryReport real = device->memory_report();
        const MemoryReport predicted = dry_run(open_backend("dry:reference"), [&] {
                                         DryRanks dry(ranks.rank(), ranks.size());
                                         train(dry, bucket_bytes, transport);
                                       }).memory;
        CHECK(real.peak == predicted.peak);
        CHECK(real.peak_by_purpose == predicted.peak_by_purpose);
        CHECK(real.host_peak == predicted.host_peak);
        // A bucket has eight gradients of 64 KiB each; of the small buckets, one is made while
        // another leaves, and the own sums are those of at most three parameters.
        const uint64_t gradients =
            real.peak_by_purpose[static_cast<size_t>(Purpose::gradient)] >> 16;
        if (bucket_bytes == 1 << 16)
          CHECK(gradients <= 5);
        else
          CHECK(gradients >= 8);
      });
    }
}

TEST_CASE_FIXTURE(CpuDevice, "gradient buckets: messages of 16 bits, sums of f32" *
                                 doctest::test_suite("host")) {
  for (const DType transport : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name(transport));
    const Summed result =
        sum_in_ranks(3, {.bucket_bytes = 5000, .transport = transport, .staging_bytes = 0});
    const auto sent = [&](float v) {
      return transport == DType::f32 ? v : from_16_bits(transport, to_16_bits(transport, v));
    };
    bool rounds = false, is_near = true;
    Values expected(result.sums.size());
    for (const Values& rank : result.gradients)
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += sent(rank[i]);
        rounds |= sent(rank[i]) != rank[i];
        const float unit = transport == DType::bf16 ? 0x1p-8f : 0x1p-11f;
        is_near &= std::abs(sent(rank[i]) - rank[i]) <= std::max(unit * std::abs(rank[i]), 3e-8f);
      }
    CHECK(result.sums == expected);
    CHECK(rounds == (transport != DType::f32));
    CHECK(is_near);
  }
  // Ranks have one model, whatever the dtype of messages.
  const std::vector<RankResult> results =
      in_ranks(maker<SmallBert>(), {.ranks = 3, .micro_batches = 9, .transport = DType::f16});
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

// 1e5 is a gradient in f32 and bf16, but not in f16.
TEST_CASE("gradient buckets: what f16 messages cannot hold is an overflow") {
  on_each_device([] {
    struct Large : Trainee {
      Large(uint32_t n, Accumulate::Overflow overflow) : made(SGD({w}, {.lr = 1e-6f}), n) {
        made.set_scaler(LossScaler::dynamic(1024, 1000));
        made.set_overflow(overflow);
      }
      Accumulate& optimizer() override { return made; }
      MicroBatch micro_batch(int64_t i) override {
        return {loss_with(w, {1, i == 4 ? 100.0f : 2.0f}), 1};
      }
      std::vector<Tensor> tensors() override { return {w}; }
      Tensor w = parameter({1, 2}, "w");
      Accumulate made;
    };
    for (const auto overflow :
         {Accumulate::Overflow::voids_window, Accumulate::Overflow::voids_micro_batch})
      for (const DType transport : {DType::f32, DType::f16, DType::bf16}) {
        const bool overflows = transport == DType::f16;
        const bool voids = overflow == Accumulate::Overflow::voids_micro_batch;
        for (const RankResult& rank :
             in_ranks([&](uint32_t n) { return std::make_unique<Large>(n, overflow); },
                      {.ranks = 2, .each = 1, .micro_batches = 8, .transport = transport})) {
          CHECK(rank.skipped == (overflows && !voids ? 1 : 0));
          CHECK(rank.voided == (overflows && voids ? 1 : 0));
          CHECK(rank.updates + rank.skipped == 4);
        }
      }
  });
}

TEST_CASE_FIXTURE(CpuDevice, "gradient buckets: a rank that fails in the midst of backward" *
                                 doctest::test_suite("host")) {
  for (const size_t at : {size_t{0}, size_t{3}, size_t{10}})
    CHECK(
        contains(message_of<Error>([&] {
                   run_ranks(3, [&](Communicator& ranks) {
                     SmallResNet net(1, {});
                     DataParallel parallel(net.optimizer(), ranks, {.bucket_bytes = 1000});
                     const HookHandle hook =
                         reduced_parameters(net.optimizer())[at].register_post_accumulate_grad_hook(
                             [&](const Tensor&) {
                               if (ranks.rank() == 1) fail<FileError>("test", "no disk, got 1");
                             });
                     for (int64_t i = 0; i < 2; ++i) {
                       net.optimizer().backward(net.micro_batch(i).loss);
                       net.optimizer().step();
                     }
                   });
                 }),
                 "[test] no disk"));
  CHECK_THROWS_AS(run_ranks(2,
                            [](Communicator& ranks) {
                              SmallResNet net(1, {});
                              DataParallel parallel(net.optimizer(), ranks,
                                                    {.transport = DType::i32});
                            }),
                  DTypeError);
  CHECK_THROWS_AS(run_ranks(2,
                            [](Communicator& ranks) {
                              SmallResNet net(1, {});
                              DataParallel parallel(net.optimizer(), ranks, {.bucket_bytes = 0});
                            }),
                  ValueError);
}

TEST_CASE("message thread: jobs in order, and none after one that throws" *
          doctest::test_suite("host")) {
  std::vector<int> done;
  {
    MessageThread thread;
    thread.wait(0);
    for (int i = 1; i <= 100; ++i) CHECK(thread.add([&, i] { done.push_back(i); }) == uint64_t(i));
    thread.wait(50);
    CHECK(done.size() >= 50);
    thread.add([] { fail<RankError>("test", "a message is lost, got {}", 0); });
    thread.add([&] { done.push_back(-1); });
    CHECK_THROWS_AS(thread.wait(102), RankError);
    CHECK_THROWS_AS(thread.wait(102), RankError);
  }
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 1);
  CHECK(done == expected);
}

// The copies by which gradients leave.
TEST_CASE("device: a thread reads host memory behind a point of the queue") {
  on_each_device([] {
    const std::shared_ptr<Device> device = default_device();
    const auto make = [&](MemoryPlace where) {
      const PlaceScope place(where);
      return empty({1 << 16}, DType::f32, device);
    };
    const Tensor source = make(MemoryPlace::device), target = make(MemoryPlace::host);
    for (int round = 1; round <= 5; ++round) {
      fill_(source, static_cast<float>(round));
      device->copy(*source.impl().storage, 0, *target.impl().storage, 0, source.bytes());
      const std::function<void()> arrival = device->mark();
      const std::byte* bytes = device->host_bytes(*target.impl().storage);
      if (!bytes) continue;
      std::vector<float> seen(static_cast<size_t>(target.numel()));
      std::thread reader([&] {
        arrival();
        std::memcpy(seen.data(), bytes, seen.size() * sizeof(float));
      });
      for (int more = 0; more < 100; ++more) fill_(source, -1);
      reader.join();
      CHECK(seen == std::vector<float>(seen.size(), static_cast<float>(round)));
    }
  });
}
