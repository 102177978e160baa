// The texts and figures of forecasts, from reports that are made up by hand.
#include "core/memory/default_device.h"
#include "nn/layers.h"
#include "optim/sgd.h"
#include "planner/choices/choice_text.h"
#include "planner/choices/planned_run.h"
#include "planner/choices/remedies.h"
#include "planner/forecast/estimate.h"
#include "planner/forecast/rank_memory.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::contains;
using test::message_of;

namespace {

constexpr uint64_t one_kib = 1024;
constexpr int64_t told_width = 64;

// A layer by SGD; it has no segments, whatever the settings say.
const MakeSteps told_steps = training_steps([](const StepSettings& s) {
  auto net = std::make_shared<Linear>(told_width, told_width);
  auto sgd = std::make_shared<SGD>(net->parameters(), SGDOptions{.lr = 0.1f});
  return [=] {
    const Autocast autocast(s.dtype, s.dtype != DType::f32);
    sgd->backward(mean(square(relu((*net)(empty({s.batch, told_width}))))));
    sgd->step();
    sgd->zero_grad();
  };
});

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("forecast texts: a run's account names the budget, the ranks and what differed") {
  RunAccount account;
  account.memory.peak = account.predicted_peak = 3 * one_kib;
  account.memory.peak_reserved = 4 * one_kib;
  account.host_peak = 5 * one_kib;
  account.savings = {{"everything", 6 * one_kib}};
  const std::string plain = account.str();
  CHECK(contains(plain, "A dry run predicts this peak to the byte (3072)."));
  CHECK(contains(plain, "Host memory of this process: at most 5.00 KiB"));
  for (const char* absent : {"budget", "ranks", "Not all steps"}) CHECK(!contains(plain, absent));

  account.predicted_peak = 3 * one_kib - 1;
  account.budget = 7 * one_kib;
  account.difference = "op 3 is 'relu'";
  account.rank_peaks = {3000, 1000, 2000};
  account.predicted_rank_peaks = {3000, 1001, 2000};
  const std::string all = account.str();
  CHECK(contains(all, "A dry run predicts 3071 bytes, but the peak was 3072."));
  CHECK(contains(all, "\nThe budget of 7.00 KiB was kept: blocks of 4.00 KiB, 3.00 KiB of them"));
  CHECK(contains(all, "\nNot all steps followed the plan of recomputation: op 3 is 'relu'."));
  CHECK(contains(all,
                 "\nOf 3 ranks, 2 to the byte: rank 1 needs least, 1000 B, and rank 0 most, 2.93 "
                 "KiB."));
}

TEST_CASE("forecast texts: a row of savings says by how much it is better, or worse") {
  const std::string table = savings_table(
      {{"first", 4 * one_kib}, {"less", one_kib}, {"more", 3 * one_kib}, {"same", 3 * one_kib}});
  const std::string less = fmt::format("  {:<40}{:>13}{:>13}   4.00x\n", "less", "-3.00 KiB",
                                       "1.00 KiB"),
                    more = fmt::format("  {:<40}{:>13}{:>13}   0.33x\n", "more", "+2.00 KiB",
                                       "3.00 KiB"),
                    same = fmt::format("  {:<40}{:>13}{:>13}   1.00x\n", "same", "0 B", "3.00 KiB");
  CHECK(
      contains(table, fmt::format("\n  {:<40}{:>26}\n", "first", "4.00 KiB") + less + more + same));
  CHECK(plan_text({}) == "planned recomputation");
  CHECK(plan_text({.in_8_bits = 2 * one_kib}) == "recomputation, 2.00 KiB in 8 bits");
}

TEST_CASE("forecast texts: of many ranks, a table shows the first of the least and of the most") {
  std::vector<MemoryReport> ranks(2);
  for (MemoryReport& rank : ranks) rank.peak = 5 * one_kib;
  CHECK(!contains(rank_table(ranks), "most"));
  ranks[1].peak = 6 * one_kib;
  CHECK(contains(rank_table(ranks), "  least\n"));
  ranks.assign(16, ranks[0]);
  ranks[9].peak = 7 * one_kib;
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  CHECK(lines(rank_table(ranks)) == 2 + 16);
  ranks.push_back(ranks[0]);
  ranks[12].peak = 4 * one_kib;
  const std::string table = rank_table(ranks);
  CHECK(lines(table) == 2 + 2);
  CHECK(contains(table, "\n  9         7.00 KiB"));
  CHECK(contains(table, "\n  12        4.00 KiB"));
}

TEST_CASE("forecast texts: rows of choices are as wide as the longest") {
  Choice first, second;
  first.forecast.memory.peak = one_kib;
  second.options = std::string(50, 'x');
  second.seconds = 0.25;
  const std::string table = front_table({first, second});
  CHECK(contains(table, fmt::format("\n  {:<50}{:>12}", "as it was asked for", "1.00 KiB")));
  CHECK(contains(table, "\n  " + second.options + "         0 B         0 B      0.25 s\n"));
  CHECK(contains(front_table({first}),
                 fmt::format("\n  {:<44}{:>12}", "as it was asked for", "1.00 KiB")));
}

TEST_CASE("forecast texts: the usual estimate counts states, outputs twice, and the input") {
  Estimate e{
      .states = 4, .parameters = 1000, .outputs = 300, .input = 20, .saved = 200, .exact = {}};
  CHECK(e.total() == 4 * 1000 + 2 * 300 + 20);
  e.exact.peak = 2310;
  e.exact.peak_by_purpose[static_cast<size_t>(Purpose::parameter)] = 1000;
  e.exact.peak_by_purpose[static_cast<size_t>(Purpose::gradient)] = 500;
  e.exact.peak_by_purpose[static_cast<size_t>(Purpose::optimizer)] = 1500;
  const std::string text = estimate_text(e);
  CHECK(contains(text, "parameters x 4 + outputs x 2 + input = 4.51 KiB; exact: 2.26 KiB"));
  CHECK(contains(text, "(the estimate is 2.00 times that)"));
  CHECK(contains(text, "parameters x 4: 3.91 KiB; exact: 2.93 KiB, 3.0 floats per parameter"));
  CHECK(contains(text, "outputs x 2: 600 B"));
  CHECK(contains(text, "Gradients read 200 B of the 300 B"));
  e.outputs = 0;
  CHECK(estimate_text(e).empty());
}

TEST_CASE("forecast texts: segments that a model does not have lower no peak") {
  const auto cpu = open_backend("reference");
  const Planner planner({.make = told_steps}, *cpu);
  const StepSettings marked{.batch = 256, .checkpoint = "block"};
  const uint64_t peak = planner.peak(marked);
  const auto problems = problems_of_segments(planner, marked);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0] ==
        fmt::format("the peak of the run is {0} with all segments and {0} without any",
                    format_bytes(peak)));
  CHECK(problems_of_segments(planner, {.batch = 256, .checkpoint = "none"}).empty());
  StepSettings planned = marked;
  planned.recompute = std::make_shared<const Plan>();
  CHECK(problems_of_segments(planner, planned).empty());
  const Planner idle({.make = told_steps, .trains = false}, *cpu);
  CHECK(problems_of_segments(idle, marked).empty());
}

TEST_CASE("forecast texts: a trace is that of the third update, or the last step") {
  set_default_device(open_backend("reference"));
  const auto traced = [](uint32_t accumulate, int64_t total) {
    std::vector<int64_t> steps;
    int64_t now = 0;
    {
      PlannedRun run({.make = told_steps, .settings = {.accumulate = accumulate}}, {},
                     [&](const MemoryTrace& trace) {
                       steps.push_back(now);
                       steps.push_back(static_cast<int64_t>(trace.steps.size()));
                     });
      for (; now < total; ++now) {
        run.before_step(now, total);
        default_device()->end_step();
      }
      run.after_steps();
    }
    return steps;
  };
  using Steps = std::vector<int64_t>;
  CHECK(traced(1, 9) == Steps{3, 1});   // step 2, which ends before step 3
  CHECK(traced(1, 2) == Steps{2, 1});   // the last one
  CHECK(traced(3, 20) == Steps{9, 3});  // steps 6, 7 and 8
  CHECK(traced(10, 99) == Steps{28, 8});
}

TEST_CASE("forecast texts: remedies are within the smaller of the budget and the limit") {
  const auto cpu = open_backend("reference");
  const StepSettings settings{.batch = 512};
  const Planner planner({.make = told_steps, .settings = settings}, *cpu);
  const uint64_t peak = planner.peak(settings), limit = peak * 7 / 10;
  const auto options = [&](uint64_t budget, uint64_t memory_limit) {
    StepSettings asked = settings;
    asked.budget = budget;
    std::vector<std::string> all;
    for (const Choice& remedy : find_remedies(planner, asked, memory_limit)) {
      CHECK(remedy.forecast.memory.peak_reserved <= limit);
      all.push_back(remedy.options);
    }
    return all;
  };
  const auto by_limit = options(0, limit);
  CHECK(!by_limit.empty());
  CHECK(options(limit, 0) == by_limit);
  CHECK(options(limit, 2 * peak) == by_limit);
  CHECK(options(2 * peak, limit) == by_limit);
  StepSettings one = settings;
  one.batch = 1;
  for (const Choice& remedy : find_remedies(planner, one, 0))
    CHECK(!contains(remedy.options, "batch"));  // there is no smaller one
}

TEST_SUITE_END();
