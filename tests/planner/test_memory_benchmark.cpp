// The parts of the memory benchmark: predictions hold, and its files agree with each other.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "backends/open.h"
#include "benchmarks/memory/measure.h"
#include "benchmarks/memory/report.h"
#include "benchmarks/memory/rows.h"
#include "benchmarks/memory/times.h"
#include "benchmarks/memory/workloads.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::memory {

namespace {

// Runs two small networks in every way, predicted and really.
Report small_report() {
  Report report{.machine = "a \"quoted\" machine", .command = "memory", .profile = "reference"};
  for (const Workload& workload :
       {cifar_workload(1, 2, true, DType::f32), chain_workload(60, 1000)}) {
    Bench bench("small", workload, open_profile("reference"));
    const auto both = [&](Result result) {
      run_really(result, "reference");
      report.results.push_back(std::move(result));
    };
    both(bench.plain());
    both(bench.block(3));
    both(bench.memory());
    both(bench.speed());
    both(bench.nested());
    both(bench.budget(report.results.back().peak));
  }
  add_bar(report, report.results.back(), "what", "theirs", 1000, 0.25);
  return report;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool inside = false;
  for (const char c : line) {
    if (c == '"')
      inside = !inside;
    else if (c == ',' && !inside)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

}  // namespace

TEST_CASE("memory benchmark: real runs have the predicted tapes and peaks" *
          doctest::test_suite("host")) {
  Report report = small_report();
  CHECK(report.results.size() == 12);
  CHECK(mispredictions(report).empty());
  const auto peak = [&](size_t chain, size_t method) {
    return report.results[6 * chain + method].peak;
  };
  CHECK(peak(1, 1) < peak(1, 0) / 2);  // block
  CHECK(peak(1, 2) < peak(1, 0) / 2);  // memory
  CHECK(peak(1, 5) <= peak(1, 4));     // budget
  for (const Result& r : report.results)
    if (r.method == "budget") {
      CHECK(r.reserved <= r.budget);
      CHECK(r.moved == 0);
    }
  report.results[3].real->peak += 256;
  report.results[7].real->tape.records += 1;
  CHECK(mispredictions(report).size() == 2);
}

// A plan that fills its blocks to the last byte moves values in every step.
TEST_CASE("memory benchmark: within a budget values stay where they are" *
          doctest::test_suite("host")) {
  Bench bench("small", cifar_workload(2, 2, true, DType::f32), open_profile("reference"));
  const uint64_t plain = bench.plain().peak, least = bench.least().peak;
  for (uint64_t part = 0; part < 12; ++part) {
    const Result r = bench.budget(least + (plain - least) * part / 12);
    INFO("budget " << r.budget << ", peak " << r.peak << ", reserved " << r.reserved);
    if (part > 1) CHECK(r.moved == 0);
    CHECK(r.reserved <= r.budget);
  }
}

TEST_CASE("memory benchmark: steps are timed beside the plain ones of their model" *
          doctest::test_suite("host")) {
  Report report = small_report();
  report.results[2].method = "front";  // a point of a front, and one that no device holds
  report.results[3].reserved = UINT64_MAX;
  time_steps(report.results, "reference", 3);
  for (size_t i = 0; i < report.results.size(); ++i) {
    INFO("result " << i);
    const auto& times = report.results[i].times;
    REQUIRE(times.has_value() == (i != 2 && i != 3));
    if (!times) continue;
    CHECK(times->rounds == 3);
    CHECK(times->seconds > 0);
    CHECK((times->least <= times->on_top && times->on_top <= times->most));
    const bool is_plain = report.results[i].method == "plain";
    if (is_plain) CHECK((times->least == 0 && times->most == 0));
    CHECK(time_on_top(report.results[i]).find(is_plain ? "plain" : " % (") != std::string::npos);
    CHECK(to_json(report)["results"][i]["times"]["rounds"] == 3);
  }
  CHECK(time_on_top(report.results[2]).empty());
}

TEST_CASE("memory benchmark: JSON, CSV and page say the same" * doctest::test_suite("host")) {
  Report report = small_report();
  for (size_t i = 0; i < 6; ++i) report.results[i].row = "openai";  // a row with a chart
  const TemporaryFolder folder;
  write_report(report, folder / "results", "small");
  const auto json = nlohmann::json::parse(contents(folder / "results/small.json"));
  CHECK(json["machine"] == report.machine);
  REQUIRE(json["results"].size() == report.results.size());
  CHECK(json["bars"].size() == 1);

  std::istringstream csv(contents(folder / "results/small.csv"));
  std::string line;
  REQUIRE(std::getline(csv, line));
  const std::vector<std::string> names = fields_of(line);
  const auto column = [&](const std::string& name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  for (const auto& result : json["results"]) {
    REQUIRE(std::getline(csv, line));
    const std::vector<std::string> fields = fields_of(line);
    REQUIRE(fields.size() == names.size());
    for (const char* name : {"method", "model", "norm", "in_peak", "device"})
      CHECK(fields[column(name)] == result[name].get<std::string>());
    CHECK(fields[column("peak")] == result["peak"].dump());
    CHECK(fields[column("real_peak")] == result["real"]["peak"].dump());
    CHECK(fields[column("real_process")] == result["real"]["process"].dump());
    CHECK(fields[column("saved_bytes")] == result["tape"]["saved_bytes"].dump());
  }
  CHECK(!std::getline(csv, line));

  const std::string page = contents(folder / "results/small.html");
  for (const char* outside : {"http:", "https:", "src=", "<script", "<link"})
    CHECK(page.find(outside) == std::string::npos);
  CHECK(page.find("in 12 of them") != std::string::npos);
  CHECK(contents(folder / "results/small-1.svg").starts_with("<svg xmlns"));
  CHECK(contents(folder / "results/small.md").find("| small |") != std::string::npos);
}

TEST_CASE("memory benchmark: charts have a point for every figure" * doctest::test_suite("host")) {
  const Chart chart{.title = "a < b",
                    .x = "k",
                    .y = "MB",
                    .log_x = true,
                    .log_y = true,
                    .series = {{.name = "one", .points = {{1, 10}, {10, 100}, {100, 5000}}},
                               {.name = "two", .colour = 1, .points = {{1, 20}}}}};
  const std::string svg = to_svg(chart), text = to_text(chart);
  for (const std::string& drawing : {svg, to_picture(chart)}) {
    size_t circles = 0;
    for (size_t at = 0; (at = drawing.find("<circle", at)) != std::string::npos; ++at) ++circles;
    CHECK(circles == 4);
  }
  CHECK(svg.find("a &lt; b") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), 'a') >= 3);
  CHECK(!to_svg({.title = "empty"}).empty());
}

TEST_CASE("memory benchmark: networks are as they are described" * doctest::test_suite("host")) {
  const auto records = [](const Workload& workload) {
    TapeStats tape;
    dry_run(open_backend("dry:reference"), [&] { workload.run({}, &tape); });
    return tape.records;
  };
  CHECK(resnet1001_workload(1, DType::f32).about.depth == 1001);
  CHECK(records(chain_workload(40, 10)) == 41);
  CHECK(records(cifar_workload(3, 1, false, DType::f32)) <
        records(cifar_workload(4, 1, false, DType::f32)));
}

}  // namespace rw::memory
