// The view that people have of a run: the bar on a terminal, and the page of a report.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/memory/memory_trace.h"
#include "planner/timeline/timeline.h"
#include "trainer/program/progress.h"
#include "trainer/program/shared_options.h"
#include "trainer/report/run_page.h"

namespace rw::test {

namespace {

const StepFigures figures = {.loss = 1.5,
                             .accuracy = 0.25,
                             .rate = 100,
                             .unit = "images",
                             .now = 1 << 20,
                             .peak = 2 << 20,
                             .most = 3 << 20};

// Returns the columns that a terminal needs for UTF-8 text without escapes.
int columns_of(const std::string& text) {
  return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

TEST_CASE("progress: a bar fits terminals of every width, and leaves out what matters least" *
          doctest::test_suite("host")) {
  for (int columns = 1; columns <= 200; ++columns)
    for (const bool utf8 : {false, true}) {
      CAPTURE(columns);
      const std::string line =
          progress_bar(30, 75, figures, 12, {.columns = columns, .utf8 = utf8});
      CHECK(columns_of(line) <= std::max(1, columns - 1));
      if (columns > 12) CHECK(line.find("step 30/75") != std::string::npos);
    }
  const auto line = [](int columns) {
    return progress_bar(30, 75, figures, 3723, {.columns = columns});
  };
  CHECK(line(200) ==
        " 40 % ############..................  step 30/75  loss 1.500  accuracy 25.0 %  "
        "100 images/s  1.00 MiB now  2.00 MiB peak  of 3.00 MiB  1 h 2 min left");
  CHECK(line(60) == " 40 % #####........  step 30/75  loss 1.500  1 h 2 min left");
  CHECK(line(24) == "step 30/75");
}

TEST_CASE("progress: the last step has a full bar and the time that it took" *
          doctest::test_suite("host")) {
  const std::string line = progress_bar(75, 75, figures, 61, {.columns = 70, .colour = true});
  CHECK(line.starts_with("100 % \x1b[36m####"));
  CHECK(line.find('.', line.find('#')) > line.find("step"));
  CHECK(line.ends_with("in 1 min 1 s"));
}

TEST_CASE("report page: live bytes keep a peak that lasts one event" *
          doctest::test_suite("host")) {
  MemoryTrace trace{.end = 1000};
  trace.tensors = {{.bytes = 7},
                   {.bytes = 100, .begin = 500, .end = 501},
                   {.bytes = 20, .begin = 700, .end = 800},
                   {.bytes = 1, .begin = 900}};
  const std::vector<uint64_t> live = live_bytes(trace, 10);
  CHECK(live == std::vector<uint64_t>{7, 7, 7, 7, 7, 107, 7, 27, 7, 8});
  CHECK(live_bytes(trace, 5000).size() == 1000);
  CHECK(live_bytes({}).empty());
}

TEST_CASE(
    "report page: every curve, from one run or several, and nothing but text of what is given" *
    doctest::test_suite("host")) {
  const auto circles = [](const std::string& page) {
    size_t found = 0;
    for (size_t at = 0; (at = page.find("<circle", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  nlohmann::json run = {
      {"title", "<script>alert(1)</script>"},
      {"command", "resnet --data 'a&b'"},
      {"device",
       {{"name", "a <b>"},
        {"driver", "c"},
        {"memory", {{"peak", 2u << 20}}},
        {"timeline", {1, 2, 3}},
        {"savings", {{{"technique", "f16"}, {"peak", 1024u}, {"saved", 2048}}}}}},
      {"history",
       {{{"step", 1}, {"loss", 2.5}, {"accuracy", 0.1}, {"learning_rate", 0.1}},
        {{"step", 2}, {"loss", 1.5}, {"accuracy", 0.2}, {"learning_rate", 0.05}}}},
      {"evaluations", {{{"step", 2}, {"test_loss", 1.0}}}}};
  std::string page = run_page(run, true);
  CHECK(circles(page) == 3 * 2 + 1 + 3);
  for (const char* outside : {"<script", "http:", "https:", "src=", "<b>"})
    CHECK(page.find(outside) == std::string::npos);
  for (const char* text : {"test loss", "2.00 MiB", "2.00 KiB", "memory.html", "a&amp;b"})
    CHECK(page.find(text) != std::string::npos);
  CHECK(run_page(run, false).find("memory.html") == std::string::npos);

  const nlohmann::json several = {
      {"runs",
       {{{"name", "one"}, {"history", {{{"train_loss", 1.0}}, {{"train_loss", 0.5}}}}},
        {{"name", "two"}, {"history", {{{"train_loss", 2.0}}}}}}}};
  page = run_page(several, false);
  CHECK(circles(page) == 3);
  CHECK(page.find("two: train loss") != std::string::npos);

  for (int step = 3; step <= 5000; ++step)
    run["history"].push_back({{"step", step}, {"loss", 1.0}});
  CHECK(circles(run_page(run, false)) < 600);
  CHECK(!run_page(nlohmann::json::object(), false).empty());
}

TEST_CASE("shared options: one table says what they mean" * doctest::test_suite("host")) {
  CHECK(shared_text("--steps") == "steps to take");
  CHECK(shared_text("--steps", "in each round") == "steps to take: in each round");
  CHECK_THROWS_AS(shared_text("--step"), ValueError);
}

}  // namespace rw::test
