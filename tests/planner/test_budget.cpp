// A budget is a limit on the blocks that the device takes, from the first tensor on, however it is
// set, and a dry run predicts them. Values that move for it keep their bits.
#include <array>
#include <map>
#include <random>
#include <thread>

#include "core/arena/compaction.h"
#include "optim/adam.h"
#include "optim/base/gradient_table.h"
#include "optim/sgd.h"
#include "planner/auto_recompute.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/guard_backend.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/small_trainings.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::contains;
using test::Env;
using test::Losses;
using test::some_values;
using test::Training;

namespace {

using Entrance = std::function<Losses(const Training&)>;

struct BudgetOutcome {
  Losses losses;
  MemoryReport memory;
  std::string refusal;  // empty: none
};

// Runs on a device of its own, in a thread of its own, which has read no variable yet.
BudgetOutcome run_in_budget(const Training& training, const Entrance& entrance, uint64_t limit = 0,
                            const std::string& name = "reference") {
  BudgetOutcome outcome;
  std::exception_ptr error;
  std::thread([&] {
    try {
      const auto device = Device::create(open_backend(name), limit);
      const DeviceScope scope(device);
      try {
        outcome.losses = entrance(training);
      } catch (const OutOfMemory& e) {
        outcome.refusal = e.what();
      }
      outcome.memory = device->memory_report();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return outcome;
}

Losses plain_losses(const Training& training) {
  return training();
}

// The ways to set a budget in a program's own text.
Entrance by_auto(AutoRecomputeOptions options) {
  return [options](const Training& training) {
    const AutoRecompute recompute(options);
    return training();
  };
}
Entrance by_budget(uint64_t bytes) {
  return [bytes](const Training& training) {
    const MemoryBudget budget(bytes);
    const PlanFollower scope({.evicts = true});
    return training();
  };
}

void check_kept(const BudgetOutcome& outcome, const BudgetOutcome& plain, uint64_t budget) {
  CHECK(outcome.refusal == "");
  CHECK(outcome.memory.peak_reserved <= budget);
  CHECK(outcome.losses == plain.losses);
}

// Checks that a dry run needs the same.
void check_predicted(const BudgetOutcome& real, const Training& training, const Entrance& entrance,
                     const std::string& name = "reference") {
  const auto device = Device::create(open_backend(name));
  const DeviceScope scope(device);
  const Forecast dry = plan([&] { entrance(training); });
  CHECK(dry.memory.peak_reserved == real.memory.peak_reserved);
  CHECK(dry.memory.peak == real.memory.peak);
  CHECK(dry.memory.moved == real.memory.moved);
}

// Programs, and the least of 70, 50 and 35 % of their plain peak with which they can run.
const std::tuple<const char*, Training, int> budget_programs[] = {
    {"gpt", test::train_gpt, 35},
    {"resnet", test::train_resnet, 35},
    {"unet", [] { return test::train_unet(35, 37); }, 50},
    // The sequences have another length in every step.
    {"recurrent", [] { return test::train_recurrent(40, 4); }, 50}};

// The cpu with blocks of other sizes; on request it refuses large ones, or gives each kernel a
// workspace.
class BudgetBlocks : public test::GuardBackend {
 public:
  explicit BudgetBlocks(uint64_t largest)
      : GuardBackend(open_backend("reference"), false), info_(GuardBackend::info()) {
    info_.max_block_bytes = largest;
  }
  const DeviceInfo& info() const override { return info_; }
  uint32_t allocate_block(uint64_t bytes) override {
    check<OutOfMemory>(bytes <= most, "blocks", "{} bytes are too many", bytes);
    return GuardBackend::allocate_block(bytes);
  }
  void copy(BufferRange source, BufferRange target) override {
    CHECK((source.block != target.block || source.offset >= target.offset + target.size ||
           target.offset >= source.offset + source.size));
    Backend::copy(source, target);
  }
  std::shared_ptr<const Preparation> prepare(const KernelCall&) const override {
    if (workspace == 0) return nullptr;
    const auto preparation = std::make_shared<Preparation>();
    preparation->workspace_bytes = workspace;
    return preparation;
  }

  uint64_t most = UINT64_MAX, workspace = 0;

 private:
  DeviceInfo info_;
};

// Bytes that are checked again later.
struct Value {
  std::shared_ptr<Storage> storage;
  std::vector<uint8_t> bytes;

  Value(const std::shared_ptr<Device>& device, int64_t size, uint32_t seed)
      : storage(device->allocate({size}, DType::u8)), bytes(static_cast<size_t>(size)) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(seed = seed * 1664525 + 1013904223);
    device->write(*storage, 0, bytes.size(), bytes.data());
  }
  bool is_there() const {
    std::vector<uint8_t> now(bytes.size());
    storage->device().read(*storage, 0, now.size(), now.data());
    return now == bytes;
  }
};

TEST_SUITE_BEGIN("host");

TEST_CASE("budget: blocks of a user's program stay within it, by every entrance") {
  for (const auto& [program, training, feasible] : budget_programs) {
    const BudgetOutcome whole = run_in_budget(training, plain_losses);
    for (const int percent : {70, 50, 35}) {
      const uint64_t budget = whole.memory.peak * static_cast<uint64_t>(percent) / 100;
      INFO(std::string(program) << ", " << percent << " % of " << whole.memory.peak);
      const BudgetOutcome evicting = run_in_budget(training, by_budget(budget));
      CHECK(evicting.memory.peak_reserved <= budget);
      CHECK(evicting.refusal.empty() == (percent >= feasible));
      if (percent < feasible) {
        CHECK(contains(evicting.refusal, "the memory budget is"));
        continue;
      }
      check_kept(evicting, whole, budget);
      check_predicted(evicting, training, by_budget(budget));
      if (percent != 50) continue;
      const Entrance planned = by_auto({.budget = budget, .candidates = 4});
      const BudgetOutcome real = run_in_budget(training, planned);
      check_kept(real, whole, budget);
      check_predicted(real, training, planned);
      const Env bytes("REWIND_MEMORY_BUDGET", std::to_string(budget).c_str());
      const Env how("REWIND_RECOMPUTE", "evict");
      check_kept(run_in_budget(training, plain_losses), whole, budget);
    }
  }
}

// The needs of some programs depend on the number of threads; 70 % are enough for any number.
TEST_CASE("budget: kept on the cpu, too, whose kernels take workspaces") {
  for (const auto& [program, training, feasible] : budget_programs) {
    const BudgetOutcome whole = run_in_budget(training, plain_losses, 0, "cpu");
    const uint64_t budget = whole.memory.peak * 7 / 10;
    INFO(std::string(program) << " in " << budget << " of " << whole.memory.peak);
    for (const auto& entrance : {by_budget(budget), by_auto({.budget = budget, .candidates = 4})}) {
      const BudgetOutcome real = run_in_budget(training, entrance, 0, "cpu");
      check_kept(real, whole, budget);
      check_predicted(real, training, entrance, "cpu");
    }
  }
}

// Products with long sums and small outputs cost more to recompute than to fetch.
TEST_CASE("budget: a limit of exactly the plain peak does") {
  for (const auto& [program, training, feasible] : budget_programs) {
    INFO(std::string(program));
    const BudgetOutcome whole = run_in_budget(training, plain_losses);
    const BudgetOutcome tight = run_in_budget(training, plain_losses, whole.memory.peak);
    check_kept(tight, whole, whole.memory.peak);
    CHECK(tight.memory.peak == whole.memory.peak);
    CHECK(tight.memory.moved > 0);
    CHECK(contains(run_in_budget(training, plain_losses, whole.memory.peak - 256).refusal,
                   "the memory limit is"));
  }
}

TEST_CASE("budget: one that begins late has what is held above it given back") {
  test::CpuDevice cpu;
  const Value first(cpu.device, 3000, 1);
  Value gone(cpu.device, 50000, 2);
  const Value last(cpu.device, 7000, 3);
  CHECK(cpu.device->memory_report().reserved >= uint64_t{16} << 20);
  gone.storage = {};
  const MemoryBudget budget(12000);
  CHECK(cpu.device->memory_report().reserved <= 12000);
  CHECK(first.is_there());
  CHECK(last.is_there());
  const MemoryBudget less(8000);  // less than the live bytes
  CHECK(cpu.device->memory_report().reserved <= 12000);
  CHECK_THROWS_AS(Value(cpu.device, 1, 4), OutOfMemory);
  CHECK(first.is_there());
}

TEST_CASE("budget: values keep their bits wherever they move") {
  std::mt19937 random(5);
  constexpr uint64_t limit = 64 << 10;
  uint64_t moves = 0;
  for (int round = 0; round < 24; ++round) {
    const bool is_whole = round % 4 != 3;  // in one block
    const auto device =
        Device::create(std::make_unique<BudgetBlocks>(is_whole ? 1 << 20 : 24 << 10), limit);
    std::vector<Value> values;
    for (int i = 0; i < 200; ++i) {
      if (!values.empty() && random() % 2 == 0)
        values.erase(values.begin() + static_cast<ptrdiff_t>(random() % values.size()));
      const auto bytes = static_cast<int64_t>(1 + random() % (random() % 8 ? 2000 : 20000));
      const PurposeScope purpose(random() % 4 ? Purpose::activation : Purpose::optimizer);
      try {
        values.emplace_back(device, bytes, random());
      } catch (const OutOfMemory&) {
        const uint64_t size = (static_cast<uint64_t>(bytes) + 255) / 256 * 256;
        if (is_whole) REQUIRE(device->live() + size > limit);
        if (!values.empty()) values.pop_back();
      }
      REQUIRE(device->memory_report().reserved <= limit);
      if (i % 50 == 49) {
        const uint64_t less = device->live() + 1024;
        device->set_memory_limit(less);
        if (is_whole) REQUIRE(device->memory_report().reserved <= less);
        device->set_memory_limit(limit);
      }
      for (const Value& value : values) REQUIRE(value.is_there());
    }
    moves += device->moves();
  }
  CHECK(moves > 1000);
}

TEST_CASE("budget: operands that move for a kernel's workspace are found") {
  for (size_t which = 0; which < 4; ++which) {
    auto backend = std::make_unique<BudgetBlocks>(1 << 20);
    BudgetBlocks& blocks = *backend;
    const auto device = Device::create(std::move(backend), 16 << 10);
    const DeviceScope scope(device);
    std::vector<Tensor> kept, gone;
    for (int i = 0; i < 8; ++i) (i % 2 ? gone : kept).push_back(full({512}, i));
    gone.clear();  // holes of 2 KiB
    blocks.workspace = 4096;
    const uint64_t moves = device->moves();
    kept[which].copy_(kept[(which + 1) % 4]);
    CHECK(device->moves() > moves);
    blocks.workspace = 0;
    for (size_t i = 0; i < 4; ++i) {
      const auto value = static_cast<float>(2 * (i == which ? (which + 1) % 4 : i));
      CHECK(kept[i].to_vector() == std::vector<float>(512, value));
    }
  }
}

TEST_CASE("budget: a driver that refuses what it had given loses nothing while smaller blocks do") {
  constexpr int64_t KiB = 1024;
  auto backend = std::make_unique<BudgetBlocks>(1 << 20);
  BudgetBlocks& blocks = *backend;
  blocks.most = 20 * KiB;
  const auto device = Device::create(std::move(backend), 64 * KiB);
  std::vector<Value> values;  // three blocks of 20 KiB, with 4 KiB in each
  for (int i = 0; i < 3; ++i) values.emplace_back(device, 20 * KiB, i);
  for (int i = 0; i < 3; ++i) {
    values[static_cast<size_t>(i)].storage = {};
    values[static_cast<size_t>(i)] = Value(device, 4 * KiB, 7 + i);
  }
  REQUIRE(device->memory_report().reserved == 60 * KiB);
  blocks.most = 32 * KiB;
  CHECK_THROWS_AS(Value(device, 40 * KiB, 0), OutOfMemory);
  for (const Value& value : values) CHECK(value.is_there());
  const Value fits(device, 20 * KiB, 9);
  CHECK(device->memory_report().reserved <= 64 * KiB);
  for (const Value& value : values) CHECK(value.is_there());
  blocks.most = 0;
  CHECK_THROWS_AS(Value(device, 30 * KiB, 0), DeviceError);
  CHECK_THROWS_AS(fits.is_there(), DeviceError);  // it throws by name, and gives no other bytes
}

TEST_CASE("budget: moves clear a window, pack a block or empty one") {
  std::mt19937 random(8);
  int found = 0, packed = 0;
  for (int round = 0; round < 400; ++round) {
    Arena arena(16);
    const uint32_t blocks = 1 + round % 3;
    for (uint32_t b = 0; b < blocks; ++b) arena.add_block(b, 16 * (20 + random() % 40));
    std::vector<Arena::Range> ranges;
    while (const auto range = arena.allocate(16 * (1 + random() % 8))) ranges.push_back(*range);
    std::erase_if(ranges, [&](const Arena::Range& range) {
      const bool goes = random() % 2;
      if (goes) arena.free(range);
      return goes;
    });
    const uint64_t size = arena.largest_hole() + 16 * (1 + random() % 6),
                   room = 16 * (random() % 8);
    std::map<uint32_t, uint64_t> free;
    for (const Arena::Range& hole : arena.holes()) free[hole.block] += hole.size;
    const uint64_t live = arena.live();
    const std::vector<Move> moves = compact(arena, ranges, size, room);
    const bool must = std::ranges::any_of(free, [&](const auto& f) { return f.second >= size; });
    if (must) REQUIRE(!moves.empty());
    if (moves.empty()) continue;
    for (const auto& [from, to] : moves) {  // each into memory that is free by then
      REQUIRE(from.size == to.size);
      const bool overlaps = from.block == to.block && to.offset < from.offset + from.size &&
                            from.offset < to.offset + to.size;
      if (overlaps) REQUIRE(to.offset < from.offset);
      packed += overlaps;
      arena.free(from);
      REQUIRE(arena.allocate_at(to.block, to.offset, to.size));
    }
    REQUIRE(arena.live() == live);
    const uint64_t reserved = arena.reserved();
    const bool has_hole = arena.largest_hole() >= size;
    arena.remove_free_blocks();
    REQUIRE((has_hole || reserved - arena.reserved() + room >= size));
    ++found;
  }
  CHECK(found > 200);
  CHECK(packed > 0);
}

TEST_CASE("budget: the window with the fewest bytes to move is cleared") {
  Arena arena(16);
  arena.add_block(0, 16 * 42);
  std::vector<Arena::Range> ranges;
  for (const uint64_t units : {10, 1, 10, 19, 2}) ranges.push_back(*arena.allocate(16 * units));
  for (const size_t hole : {0, 2, 4}) arena.free(ranges[hole]);
  const std::vector<Move> moves = compact(arena, std::array{ranges[1], ranges[3]}, 16 * 21, 0);
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].from.offset == ranges[1].offset);
  CHECK(moves[0].to.offset == ranges[4].offset);
}

TEST_CASE("budget: gradients that move after they were located are found again") {
  for (const bool is_whole : {true, false}) {
    const auto device = Device::create(open_backend("reference"), 64 << 10);
    const DeviceScope scope(device);
    const Tensor parameter = test::leaf(500);
    GradientTable table({{parameter}});
    auto gone = std::make_unique<Value>(device, 20000, 1);
    Tensor(parameter).set_grad(tensor(some_values(500), {500}));
    const Value stays(device, 9000, 2);
    gone.reset();
    REQUIRE((is_whole ? table.locate() : table.locate(0)));
    const std::vector<float> expected = table.stats().to_vector();
    REQUIRE(expected[0] > 0);
    const Storage& gradient = *parameter.grad().impl().storage;
    const uint64_t offset = gradient.range().offset;
    for (int64_t size = 60000; size > 0 && gradient.range().offset == offset; size -= 1000) try {
        const Value whole(device, size, 3);  // overwritten in the place of the gradient
      } catch (const OutOfMemory&) {
      }
    REQUIRE(gradient.range().offset != offset);
    table.clear_stats();
    CHECK((is_whole ? table.stats() : (table.stats(0), table.all_stats())).to_vector() == expected);
    for (const GradientTable::Part& part : table.parts(0))
      CHECK(part.gradients.moves == device->moves());
  }
}

TEST_SUITE_END();

// The same with copies in a queue.
TEST_CASE("budget: on vulkan") {
  std::shared_ptr<Device> device;
  const auto training = [] {
    manual_seed(7);
    std::vector<Tensor> weights;
    for (int i = 0; i < 6; ++i) weights.push_back(rand({48, 48}, -0.2f, 0.2f).set_requires_grad());
    SGD optimizer(weights, {.lr = 0.1f});
    return test::train_steps(optimizer, [&](int step) {
      Tensor y = tensor(some_values(40 * 48, step), {40, 48});
      for (const Tensor& w : weights) y = tanh(matmul(y, w)) + slice(y, 1, 0, 1);
      return mean(square(y));
    });
  };
  const auto on_vulkan = [&](const Entrance& entrance, uint64_t limit) {
    const DeviceScope scope(Device::create(open_backend("vulkan"), limit));
    const Losses losses = entrance(training);
    return std::pair(losses, default_device()->memory_report());
  };
  std::pair<Losses, MemoryReport> whole;
  try {
    whole = on_vulkan(plain_losses, 0);
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << e.what());
    return;
  }
  const uint64_t peak = whole.second.peak;
  const auto tight = on_vulkan(plain_losses, peak);
  CHECK(tight.first == whole.first);
  CHECK(tight.second.peak_reserved <= peak);
  CHECK(tight.second.moved > 0);
  const auto evicting = on_vulkan(by_budget(peak * 9 / 10), 0);
  CHECK(evicting.first == whole.first);
  CHECK(evicting.second.peak_reserved <= peak * 9 / 10);
}

}  // namespace
