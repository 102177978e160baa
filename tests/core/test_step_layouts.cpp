// The steady state: steps are learnt, laid out offline and followed; other steps are handled
// correctly.
#include <algorithm>
#include <random>

#include "backends/dry/dry_backend.h"
#include "core/arena/step_layouts.h"
#include "models/resnet.h"
#include "ops/losses/losses.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

// Makes one step of allocations with sizes in units of 256 bytes: a stack of them as in forward and
// backward, with short-lived ones between.
void allocate_step(const std::shared_ptr<Device>& device, const std::vector<int64_t>& sizes) {
  std::vector<std::shared_ptr<Storage>> saved;
  for (const int64_t size : sizes) {
    const auto scratch = device->allocate({3 * size, 256}, DType::u8);
    saved.push_back(device->allocate({size, 256}, DType::u8));
  }
  while (!saved.empty()) {
    const auto gradient = device->allocate(saved.back()->shape(), DType::u8);
    const auto scratch = device->allocate({saved.back()->shape()[0] / 2 + 1, 256}, DType::u8);
    saved.pop_back();
  }
}

std::shared_ptr<Device> dry_device(uint64_t limit = 0) {
  return Device::create(open_backend("dry:reference"), limit);
}

// Checks that once they are learnt, all steps of the program lie where they were planned.
void check_followed(const std::function<void()>& program, uint64_t steps) {
  const Forecast dynamic = dry_run(open_backend("dry:reference"), program);
  const Forecast packed =
      dry_run(open_backend("dry:reference"), program, {.learnt = dynamic.steps});
  CHECK(packed.memory.followed_steps == steps);
  CHECK(packed.memory.plan_misses == 0);
}

// Layouts of steps without a device: their memory is as large as they ask for.
struct BareSteps {
  using Tickets = std::vector<StepLayouts::Ticket>;

  Tickets make(const std::vector<uint64_t>& sizes) {
    Tickets made(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) layouts.propose(sizes[i], sizes[i], made[i]);
    return made;
  }
  // A step whose allocations die in the order in which they were made.
  void step(const std::vector<uint64_t>& sizes) {
    for (const StepLayouts::Ticket& ticket : make(sizes)) layouts.freed(ticket);
    layouts.end_step();
  }
  bool knows(uint64_t size) const {
    return std::ranges::any_of(layouts.traces(), [&](const StepTrace& trace) {
      return trace.allocations[0].size == size;
    });
  }

  Arena arena{1};
  uint32_t blocks = 0;
  StepLayouts layouts{arena, MiB,
                      [this](uint64_t bytes) -> std::optional<uint32_t> {
                        arena.add_block(blocks, bytes);
                        return blocks++;
                      },
                      [this] { arena.remove_free_blocks(); }};
};

}  // namespace

TEST_CASE("steady state: what outlives a step dies at its end, before its successor or after" *
          doctest::test_suite("host")) {
  for (const size_t others : {0, 1, 2, 3}) {
    CAPTURE(others);
    BareSteps steps;
    steps.step({100, 200, 300});
    const BareSteps::Tickets made = steps.make({100, 200, 300, 400});
    steps.layouts.end_step();
    steps.make(std::vector<uint64_t>(others, 100));
    steps.layouts.freed(made[1]);
    const StepTrace::Allocation known = steps.layouts.traces().back().allocations[1];
    CHECK(known.end == (others == 0 ? 4 : 0));
    CHECK(known.wraps == (others == 1));  // the second of the next step is not there yet
    CHECK(known.stays == (others > 1));
    if (others == 0) continue;
    steps.layouts.end_step();  // two steps later it is too late to learn anything
    steps.layouts.freed(made[2]);
    for (const StepTrace& trace : steps.layouts.traces())
      for (const StepTrace::Allocation& a : trace.allocations)
        if (a.size == 300 && trace.allocations.size() == 4) CHECK((!a.wraps && !a.stays && !a.end));
  }
}

TEST_CASE("steady state: steps that never come back are not planned, unless they are seen twice" *
          doctest::test_suite("host")) {
  BareSteps steps;
  for (uint64_t size = 100; size < 110; ++size) steps.step({size});
  CHECK(steps.layouts.traces().size() == 4);  // none was followed
  steps.step({107});
  CHECK(steps.knows(107));
  for (uint64_t size = 200; size < 216; ++size) steps.step({size});
  steps.step({105});  // sixteen others ago
  CHECK(!steps.knows(105));
  steps.step({201});
  CHECK(steps.knows(201));
  CHECK(steps.layouts.traces().size() == 6);
  steps.step({});  // nothing to plan
  CHECK(steps.layouts.traces().size() == 6);
}

TEST_CASE("steady state: of very many kinds of steps, those that came last are remembered" *
          doctest::test_suite("host")) {
  BareSteps steps;
  steps.layouts.set_solves(false);
  for (uint64_t size = 1; size <= 64; ++size) steps.step({size});
  CHECK(steps.layouts.traces().size() == 64);
  steps.step({1});
  for (uint64_t size = 65; size <= 67; ++size) steps.step({size});
  CHECK(steps.layouts.traces().size() == 64);
  for (const uint64_t gone : {2, 3, 4}) CHECK(!steps.knows(gone));
  for (const uint64_t there : {1, 5, 64, 65, 67}) CHECK(steps.knows(there));
}

TEST_CASE("steady state: a repeated step is packed close to what is live" *
          doctest::test_suite("host")) {
  const auto device = dry_device();
  const auto weights = device->allocate({5 * static_cast<int64_t>(MiB)}, DType::u8);
  const std::vector<int64_t> sizes = {9000, 3000, 40000, 12000, 70000, 1000, 25000, 25000};
  device->end_step();
  for (int i = 0; i < 6; ++i) {
    allocate_step(device, sizes);
    device->end_step();
  }
  const MemoryReport report = device->memory_report();
  CHECK(report.followed_steps == 5);
  CHECK(report.plan_misses == 0);
  CHECK(report.reserved >= report.peak);
  CHECK(static_cast<double>(report.reserved) <= 1.03 * static_cast<double>(report.peak));
}

TEST_CASE("steady state: steps of several lengths are each followed, nothing grows" *
          doctest::test_suite("host")) {
  const auto device = dry_device();
  const std::vector<std::vector<int64_t>> kinds = {
      {900, 300, 4000}, {900, 300, 4000, 1200, 7000}, {50, 60, 70}, {4000, 900}};
  uint64_t reserved = 0;
  for (int i = 0; i < 400; ++i) {
    allocate_step(device, kinds[static_cast<size_t>(i * 7 % 11) % kinds.size()]);
    device->end_step();
    if (i == 50) reserved = device->memory_report().reserved;
  }
  const MemoryReport report = device->memory_report();
  CHECK(report.reserved == reserved);
  CHECK(report.followed_steps >=
        300);  // the first two begin alike, so only one can be followed from there
}

TEST_CASE("steady state: a small value that outlives its step is in no other step's way" *
          doctest::test_suite("host")) {
  const std::vector<int64_t> shorter = {800, 200, 3000}, longer = {900, 300, 4000};
  const auto program = [&] {
    std::shared_ptr<Storage> metric;
    for (int i = 0; i < 12; ++i) {
      allocate_step(default_device(), i % 3 ? longer : shorter);
      metric = default_device()->allocate({4}, DType::u8);  // while the last one still exists
      allocate_step(default_device(), {700, 100});
      default_device()->end_step();
    }
  };
  check_followed(program, 12);
}

TEST_CASE("steady state: steps that begin with other bytes in places of one size are told apart" *
          doctest::test_suite("host")) {
  const auto program = [&] {
    for (int i = 0; i < 12; ++i) {
      const auto ids = default_device()->allocate({i % 2 ? 24 : 32}, DType::u8);
      allocate_step(default_device(),
                    i % 2 ? std::vector<int64_t>{800, 200} : std::vector<int64_t>{900, 4000});
      default_device()->end_step();
    }
  };
  check_followed(program, 12);
}

TEST_CASE("steady state: a loop that only calls its optimizer has steps, and stays small" *
          doctest::test_suite("host")) {
  for (const bool outside : {false, true}) {  // the place where its tensors live
    set_default_device(open_backend("reference"));
    Tensor weight = rand({64, 64}).set_requires_grad();
    SGD optimizer({weight});
    Tensor x, loss;
    for (int i = 0; i < 200; ++i) {
      const Tensor inside = rand({32, 64});
      if (outside) x = rand({32, 64});
      loss = mean(square(matmul(outside ? x : inside, weight)));
      optimizer.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      if (!outside) loss = {};
    }
    const MemoryReport report = default_device()->memory_report();
    CHECK(report.followed_steps >= 195);
    CHECK(report.plan_misses == 0);
    CHECK(report.naive < 4 * report.peak);  // of one step
    CHECK(default_device()->step_traces().size() <= 4);
  }
}

TEST_CASE("steady state: a loop that nobody divides into steps is not remembered" *
          doctest::test_suite("host")) {
  const auto device = dry_device();
  const auto weights = device->allocate({1000}, DType::u8);
  for (int i = 0; i < (1 << 20) + 10; ++i) device->allocate({256}, DType::u8);
  device->end_step();
  CHECK(device->step_traces().empty());
  for (int i = 0; i < 4; ++i) {
    allocate_step(device, {900, 300, 4000});
    device->end_step();
  }
  CHECK(device->memory_report().followed_steps >= 2);
}

TEST_CASE("steady state: 10 000 different steps do not grow the memory" *
          doctest::test_suite("host")) {
  const auto device = dry_device();
  std::mt19937 random(5);
  const auto small = [&] {
    return device->allocate({static_cast<int64_t>(1 + random() % 4000), 256}, DType::u8);
  };
  std::vector<std::shared_ptr<Storage>> persistent;
  for (int i = 0; i < 20; ++i) persistent.push_back(small());
  uint64_t peak = 0, after_warmup = 0;
  for (int i = 0; i < 10000; ++i) {
    std::vector<int64_t> sizes(4 + random() % 12);
    for (int64_t& size : sizes) size = static_cast<int64_t>(1 + random() % 3000);
    allocate_step(device, sizes);
    // Some tensors outlive steps, as a metric or the next batch does.
    persistent[random() % persistent.size()] = small();
    device->end_step();
    peak = std::max(peak, device->memory_report().peak);
    if (i == 2000) after_warmup = device->memory_report().peak_reserved;
  }
  const MemoryReport report = device->memory_report();
  MESSAGE("peak " << report.peak << ", reserved after 2000 steps " << after_warmup
                  << ", at the end " << report.peak_reserved);
  CHECK(static_cast<double>(report.peak_reserved) <= 1.25 * static_cast<double>(after_warmup));
  CHECK(static_cast<double>(report.peak_reserved) <= 1.6 * static_cast<double>(report.peak));
}

TEST_CASE("steady state: under a limit, with what persists in the way" *
          doctest::test_suite("host")) {
  std::mt19937 random(9);
  const std::vector<int64_t> sizes = {900, 300, 4000, 1200, 7000, 100, 2500, 2500};
  const auto free = dry_device();
  allocate_step(free, sizes);
  const uint64_t need = free->memory_report().peak;
  for (const double slack : {1.0, 1.05, 1.3, 2.0}) {
    const auto device =
        dry_device(static_cast<uint64_t>(static_cast<double>(need) * slack) + 4 * MiB);
    const auto weights = device->allocate({static_cast<int64_t>(MiB)}, DType::u8);
    for (int i = 0; i < 5; ++i) {
      allocate_step(device, sizes);  // in the first steps, values move
      device->end_step();
      REQUIRE(device->memory_report().live == MiB);
    }
    CHECK(device->memory_report().peak_reserved <= device->memory_limit());
  }
}

TEST_CASE("steady state: steps learnt in a dry run are packed from the first one on") {
  const std::vector<int64_t> sizes = {9000, 3000, 40000, 12000, 70000, 1000, 25000, 25000};
  const auto program = [&] {
    const auto stays = default_device()->allocate({static_cast<int64_t>(MiB)}, DType::u8);
    for (int i = 0; i < 4; ++i) {
      allocate_step(default_device(), sizes);
      default_device()->end_step();
    }
  };
  const Forecast dynamic = dry_run(open_backend("dry:reference"), program);
  const Forecast packed =
      dry_run(open_backend("dry:reference"), program, {.learnt = dynamic.steps});
  CHECK(packed.memory.peak == dynamic.memory.peak);
  CHECK(packed.memory.followed_steps == 4);
  CHECK(packed.memory.plan_misses == 0);
  const auto ratio = [](const Forecast& f) {
    return static_cast<double>(f.memory.peak_reserved) / static_cast<double>(f.memory.peak);
  };
  MESSAGE("most reserved over the peak: " << ratio(dynamic) << " before, " << ratio(packed)
                                          << " learnt");
  CHECK(ratio(packed) <= 1.03);
  CHECK(ratio(dynamic) > ratio(packed));
  // So many bytes are enough.
  const uint64_t limit = packed.memory.peak_reserved;
  CHECK(dry_run(open_backend("dry:reference"), program,
                {.memory_limit = limit, .learnt = dynamic.steps})
            .memory.peak_reserved <= limit);
  const Forecast moving = dry_run(open_backend("dry:reference"), program, {.memory_limit = limit});
  CHECK(moving.memory.peak_reserved <= limit);
  CHECK(moving.memory.moved > 0);  // in the first step
  CHECK(dry_run(open_backend("dry:reference"), program,
                {.memory_limit = limit, .learnt = dynamic.steps})
            .memory.moved == 0);
  CHECK_THROWS_AS(dry_run(open_backend("dry:reference"), program,
                          {.memory_limit = packed.memory.peak - 1, .learnt = dynamic.steps}),
                  OutOfMemory);
  // On a device whose blocks are too small for the layout that was learnt.
  const auto small =
      Device::create(make_dry_backend({.memory_bytes = 1 << 30, .max_block_bytes = 20 * MiB}));
  small->learn(dynamic.steps);
  const auto stays = small->allocate({static_cast<int64_t>(MiB)}, DType::u8);
  CHECK_THROWS_AS(allocate_step(small, sizes), OutOfMemory);
}

TEST_CASE("steady state: training on Vulkan keeps its memory and its results" *
          doctest::test_suite("programs")) {
  try {
    set_default_device(open_backend("vulkan"));
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  for (const bool drops_early : {true, false}) {
    CAPTURE(drops_early);
    set_default_device(open_backend("vulkan"));
    manual_seed(3);
    ResNet model(resnet_cifar(8, 1, BlockKind::basic, 10));
    SGD optimizer(one_group(model.parameters()), {.lr = 0.01f});
    uint64_t reserved = 0;
    for (int i = 0; i < 24; ++i) {
      {
        const int64_t n = i % 5 == 4 ? 1 : 2;  // a short last batch
        const Tensor x = randn({n, 16, 16, 3});
        const std::vector<int32_t> labels = {3, 7};
        const Tensor loss =
            cross_entropy(model(x), tensor(std::span(labels).first(static_cast<size_t>(n)), {n}));
        if (!drops_early) optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        if (drops_early) optimizer.zero_grad();
        REQUIRE(std::isfinite(loss.item()));
      }
      default_device()->end_step();
      if (i == 9) reserved = default_device()->memory_report().reserved;
    }
    const MemoryReport report = default_device()->memory_report();
    CHECK(report.reserved == reserved);
    // Gradients that live into another kind of step may lie in its places.
    CHECK(report.followed_steps >= (drops_early ? 14u : 7u));
  }
}

}  // namespace rw::test
