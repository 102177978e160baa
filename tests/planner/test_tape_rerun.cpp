// A tape that is run again on a dry device needs the bytes that its first run needed.
#include <functional>
#include <map>
#include <numeric>

#include "planner/follow/follower.h"
#include "planner/follow/tape_rerun.h"
#include "planner/search/plans.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/random_program.h"

namespace rw::test {

namespace {

uint64_t need_of(const Tensor& loss) {
  const TapeRerun rerun(CpuDevice::tape(), loss);
  REQUIRE(rerun.is_possible());
  const auto segments = static_cast<size_t>(CpuDevice::tape().segments().size());
  const auto need = rerun.run(std::vector<bool>(segments));
  REQUIRE(need);
  return need->memory.peak;
}

// Returns the bytes of the leaves that the tape's records read.
uint64_t leaves_read(const Tape& tape) {
  std::map<const TensorImpl*, uint64_t> bytes;
  for (int64_t i = tape.begin(); i < tape.end(); ++i)
    if (const Record* record = tape.find(i))
      for (const Edge& edge : record->inputs)
        if (edge.leaf.defined()) bytes[&edge.leaf.impl()] = edge.bytes;
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0},
                         [](uint64_t sum, const auto& leaf) { return sum + leaf.second; });
}

// Needs more memory in its forward than its backward does.
Tensor much(const Tensor& x) {
  const Tensor a = concat({x, x, x, x}, 0), b = a * 2.0f, c = b * 2.0f;
  return mean(c);
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE_FIXTURE(CpuDevice, "tape rerun: random programs need what they needed") {
  std::vector<Tensor> leaves = program_leaves();
  const uint64_t at_rest = live();
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(rounds(24, 200)); ++seed) {
    INFO("seed " << seed);
    Graph recorded;
    for (const bool planned : {false, true}) {  // plain, then with segments
      INFO("planned " << planned);
      const Plan plan = planned ? follow(recorded, plan_memory(recorded)) : Plan();
      manual_seed(seed);
      device->reset_peak();
      uint64_t expected = 0, known = 0;
      {
        Tensor loss, other;
        {
          const PlanFollower scope(plan, planned ? nullptr : &recorded);
          std::tie(loss, other) = Program(seed, false, leaves).keep_all().never_write().run();
        }
        expected = need_of(loss);
        known = leaves_read(tape());
        loss.backward();
      }
      for (Tensor& t : leaves) t.set_grad({});
      REQUIRE(device->memory_report().peak - at_rest == expected - known);
    }
  }
}

TEST_CASE_FIXTURE(CpuDevice, "tape rerun: detached handles keep a value as long as they live") {
  Tensor w = leaf(1024), v = leaf(1024);
  Tensor total;
  const auto detached = [&] {
    const Tensor y = w * 2.0f;
    total = mean(y);
    return y.detach();
  };
  const std::function<Tensor()> programs[] = {
      [&] {  // all that is left of a value
        const Tensor d = detached(), m = much(w);
        return total + mean(w + d) + m;
      },
      [&] {  // an op is given one of two
        const Tensor d = detached(), first = mean(w + d.detach()), m = much(w);
        return total + first + mean(w + d) + m;
      },
      [&] {  // a leaf's, which has a gradient
        const Tensor first = mean(v * w.detach()), m = much(v);
        return first + mean(w * 2.0f) + m;
      },
      [&] {  // an op is given the last one, after its value died
        Tensor d = detached();
        const Tensor first = mean(w + std::move(d)), m = much(w);
        return total + first + m;
      }};
  for (const auto& program : programs) {
    INFO("program " << &program - programs);
    w.set_grad(zeros({1024}));
    const uint64_t at_rest = live();
    device->reset_peak();
    Tensor loss = program();
    const uint64_t expected = need_of(loss), known = TapeRerun(tape(), loss).outside_bytes();
    loss.backward();
    loss = total = {};
    CHECK(device->memory_report().peak - at_rest == expected - known);
    v.set_grad({});
  }
}

TEST_CASE_FIXTURE(CpuDevice, "tape rerun: constants of the pass are its own, a gradient is held") {
  Tensor w = leaf(4096);
  for (const bool holds : {false, true}) {
    INFO("holds " << holds);
    const uint64_t at_rest = live(), newest = Storage::newest();
    device->reset_peak();
    const Tensor loss = mean(square(w * 2.0f) * full({4096}, 3.0f));
    const TapeRerun rerun(tape(), loss, false, holds);
    REQUIRE(rerun.is_possible());
    const uint64_t expected = rerun.run({})->memory.peak, known = rerun.outside_bytes(newest);
    CHECK(rerun.outside_bytes() - known == 4 * 4096);
    const Tensor gradient = holds ? ones({}) : Tensor();
    loss.backward(gradient);
    CHECK(device->memory_report().peak - at_rest == expected - known);
    w.set_grad({});
  }
}

TEST_SUITE_END();

}  // namespace rw::test
