// The segments that README.md and the examples mark are worth their work. The programs run as they
// are, on a device that computes nothing.
#include <rewind/rewind.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "planner/follow/segment_report.h"
#include "tests/fixtures/tape_fixture.h"

// Everything that they include was included above.
#define main program
namespace readme {
#include "tests/install/main.cpp"
}
namespace checkpointing {
#include "examples/checkpointing.cpp"
}
namespace custom_op {
#include "examples/custom_op.cpp"
}
namespace vit {
#include "examples/vit.cpp"
}
namespace resnet {
#include "examples/resnet.cpp"
}
namespace does_not_fit {
#include "examples/does_not_fit.cpp"
}
#undef main

namespace rw::test {

namespace {

struct Enough {};

// Collects the problems of segments at each backward pass.
struct Look : Tape::Observer {
  Look(int& passes, std::vector<std::string>& problems) : passes(passes), problems(problems) {}

  void before_backward(const Tensor& loss) override {
    // The last segments of a chain never pay by themselves: the values that they drop are back when
    // most is in memory.
    const std::vector<SegmentReport> reports = segment_reports(*Tape::current(), loss);
    const auto pays = [](const SegmentReport& report) { return report.problem.empty(); };
    if (!reports.empty() && std::ranges::none_of(reports, pays))
      problems.push_back(
          fmt::format("none of {} segments: {}", reports.size(), reports[0].problem));
    if (!reports.empty() && ++passes == 3) throw Enough();
  }

  int& passes;
  std::vector<std::string>& problems;
};

// Runs the program until some backward passes with segments were seen, and returns its segments'
// problems.
std::vector<std::string> problems_of(int (*program)(int, char**)) {
  const DeviceScope device(nullptr);
  std::vector<std::string> problems;
  int passes = 0;
  const std::shared_ptr<Tape> tape = Tape::current();
  Look look(passes, problems);
  tape->add_observer(look);
  std::string name = "program", on = "dry:reference";
  char* arguments[] = {name.data(), on.data(), nullptr};
  try {
    program(2, arguments);
  } catch (const Enough&) {
  }
  tape->remove_observer(look);
  tape->clear();
  CHECK(passes > 0);
  return problems;
}

}  // namespace

TEST_CASE("marked segments: those of README and the examples lower the peak" *
          doctest::test_suite("host")) {
  const std::map<std::string, int (*)(int, char**)> programs = {
      {"README", readme::program},       {"checkpointing", checkpointing::program},
      {"custom_op", custom_op::program}, {"vit", vit::program},
      {"resnet", resnet::program},       {"does_not_fit", does_not_fit::program}};
  for (const auto& [name, program] : programs) {
    CAPTURE(name);
    for (const std::string& problem : problems_of(program)) FAIL_CHECK(problem);
  }
}

}  // namespace rw::test
