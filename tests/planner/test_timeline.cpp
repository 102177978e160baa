// Timelines: the page holds the whole trace, and the Chrome trace's events and counters are right.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <map>

#include "core/base/error.h"
#include "planner/timeline/timeline.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/planner/trace_fixture.h"

using namespace rw;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Returns the data that a page embeds.
json embedded(const std::string& html) {
  const std::string open = "<script id=\"trace\" type=\"application/json\">";
  const size_t begin = html.find(open) + open.size();
  const size_t end = html.find("</script>", begin);
  REQUIRE(end != std::string::npos);
  return json::parse(html.substr(begin, end - begin));
}

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

std::vector<json> category(const json& trace, const std::string& name) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event.value("cat", "") == name) found.push_back(event);
  return found;
}

// Returns the live bytes by purpose after time `at`, counted the slow way.
std::map<std::string, uint64_t> live_at(const MemoryTrace& trace, uint64_t at) {
  std::map<std::string, uint64_t> live;
  for (int p = 0; p < purpose_count; ++p) live[name(static_cast<Purpose>(p))] = 0;
  for (const TracedTensor& t : trace.tensors)
    if (t.begin <= at && at < t.end) live[name(t.purpose)] += t.bytes;
  return live;
}

std::vector<uint64_t> change_times(const MemoryTrace& trace) {
  std::vector<uint64_t> times;
  for (const TracedTensor& t : trace.tensors) {
    times.push_back(t.begin);
    if (t.end != UINT64_MAX) times.push_back(t.end);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

void check_counters(const MemoryTrace& trace, const json& file) {
  std::vector<json> counters;
  for (const json& event : events_of(file, "C"))
    if (event["name"] == "live bytes") counters.push_back(event);
  const std::vector<uint64_t> times = change_times(trace);
  REQUIRE(counters.size() == times.size());
  for (size_t i = 0; i < times.size(); ++i) {
    const auto counted = counters[i]["args"].get<std::map<std::string, uint64_t>>();
    if (counted != live_at(trace, times[i])) FAIL("live bytes differ at ", times[i]);
  }
}

void check_monotonic(const json& file) {
  double last = 0;
  for (const json& event : file["traceEvents"]) {
    REQUIRE(event["ts"].get<double>() >= last);
    REQUIRE(event.value("dur", 0.0) >= 0);
    last = event["ts"];
  }
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("timeline: the page holds every tensor and call") {
  const MemoryTrace trace = test::training_trace();
  const json data = embedded(timeline_html(trace));
  const json& tensors = data["tensors"];
  REQUIRE(tensors["begin"].size() == trace.tensors.size());
  const auto text = [&](const json& number) { return data["strings"][number.get<size_t>()]; };
  for (size_t i = 0; i < trace.tensors.size(); ++i) {
    const TracedTensor& t = trace.tensors[i];
    REQUIRE(tensors["begin"][i] == t.begin);
    REQUIRE(tensors["end"][i] == (t.end == UINT64_MAX ? json() : json(t.end)));
    REQUIRE(tensors["bytes"][i] == t.bytes);
    REQUIRE(tensors["block"][i] == t.block);
    REQUIRE(tensors["offset"][i] == t.offset);
    REQUIRE(tensors["segment"][i] == t.segment);
    REQUIRE(text(tensors["op"][i]) == t.op);
    REQUIRE(text(tensors["shape"][i]) == t.shape.str());
    REQUIRE(data["dtypes"][tensors["dtype"][i].get<size_t>()] == name(t.dtype));
    REQUIRE(data["purposes"][tensors["purpose"][i].get<size_t>()] == name(t.purpose));
    REQUIRE(data["phases"][tensors["phase"][i].get<size_t>()] == name(t.phase));
  }
  REQUIRE(data["calls"]["at"].size() == trace.calls.size());
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    REQUIRE(text(data["calls"]["kernel"][i]) == trace.calls[i].kernel);
    REQUIRE(data["calls"]["host_us"][i] == trace.calls[i].host_us);
    REQUIRE(data["kernels"]["end_us"][i] == trace.times[i].end_us);
  }
  CHECK(data["steps"] == trace.steps);
  CHECK(data["limit"] == trace.limit);
  CHECK(data["block_bytes"] == trace.block_bytes);
}

TEST_CASE("timeline: names cannot break the page") {
  MemoryTrace trace = test::training_trace(2, 1);
  const std::string hostile = "</script><script>alert(\"1\")</script><!-- \\ \n @TRACE@ é";
  trace.tensors[0].op = trace.calls[0].kernel = trace.device = hostile;
  trace.tensors[1].op = "not UTF-8: \xff";
  const std::string html = timeline_html(trace);
  CHECK(html.find("alert") != std::string::npos);
  CHECK(html.find("<script>alert") == std::string::npos);
  const json data = embedded(html);
  CHECK(data["device"] == hostile);
  CHECK(data["strings"][data["tensors"]["op"][0].get<size_t>()] == hostile);
  const json chrome = json::parse(chrome_trace_json(trace));
  CHECK(category(chrome, "kernel").size() == trace.times.size());
}

TEST_CASE("timeline: an empty trace, and tensors without kernels") {
  MemoryTrace trace;
  CHECK(embedded(timeline_html(trace))["tensors"]["begin"].empty());
  CHECK(events_of(json::parse(chrome_trace_json(trace)), "X").empty());

  trace.tensors.push_back({.bytes = 256, .begin = 0});
  trace.tensors.push_back({.bytes = 512, .begin = 3, .end = 7});
  trace.end = 8;
  CHECK(embedded(timeline_html(trace))["tensors"]["end"] == json::array({nullptr, 7}));
  const json file = json::parse(chrome_trace_json(trace));
  check_counters(trace, file);
  check_monotonic(file);
}

TEST_CASE("chrome trace: every kernel, and live bytes at every change") {
  const MemoryTrace trace = test::training_trace();
  const json file = json::parse(chrome_trace_json(trace));
  check_monotonic(file);
  check_counters(trace, file);

  const std::vector<json> kernels = category(file, "kernel");
  REQUIRE(kernels.size() == trace.times.size());
  const double shift = kernels[0]["ts"].get<double>() - trace.times[0].start_us;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const TracedCall& call = trace.calls[trace.times[i].call];
    const json& args = kernels[i]["args"];
    REQUIRE(kernels[i]["name"] == trace.times[i].kernel);
    REQUIRE(kernels[i]["dur"].get<double>() ==
            doctest::Approx(trace.times[i].end_us - trace.times[i].start_us));
    REQUIRE(kernels[i]["ts"].get<double>() == doctest::Approx(trace.times[i].start_us + shift));
    REQUIRE(kernels[i]["ts"].get<double>() >= call.host_us - 1e-3);  // not before it was queued
    REQUIRE(args["op"] == call.op);
    REQUIRE(args["phase"] == name(call.phase));
    REQUIRE(args["flops"] == call.flops);
    REQUIRE(args["bytes"] == call.bytes);
    REQUIRE(args.value("segment", -1) == call.segment);
  }
  CHECK(category(file, "step").size() == trace.steps.size());
  CHECK(events_of(file, "M").size() == 3);
}

TEST_CASE("chrome trace: memory is freed when the kernels before it are done") {
  MemoryTrace trace;
  trace.end = 6;
  trace.tensors = {{.bytes = 256, .begin = 1, .end = 3}, {.bytes = 512, .begin = 4}};
  trace.calls = {{.at = 2}, {.at = 5}};
  trace.times = {{.call = 0, .start_us = 0, .end_us = 40},
                 {.call = 1, .start_us = 50, .end_us = 60}};
  std::vector<double> at;
  for (const json& event : events_of(json::parse(chrome_trace_json(trace)), "C"))
    if (event["name"] == "live bytes") at.push_back(event["ts"]);
  CHECK(at == std::vector<double>{2, 42, 47});
}

TEST_CASE("chrome trace: ops lie within phases") {
  const json file = json::parse(chrome_trace_json(test::training_trace()));
  const std::vector<json> ops = category(file, "op");
  const auto end_of = [](const json& span) {
    return span["ts"].get<double>() + span["dur"].get<double>();
  };
  size_t i = 0;
  for (const json& phase : category(file, "phase")) {
    for (double at = phase["ts"]; at < end_of(phase) - 1e-6; at = end_of(ops[i++])) {
      REQUIRE(i < ops.size());
      REQUIRE(ops[i]["ts"].get<double>() == doctest::Approx(at));
      REQUIRE(
          phase["name"].get<std::string>().starts_with(ops[i]["args"]["phase"].get<std::string>()));
    }
  }
  CHECK(i == ops.size());
}

TEST_CASE("chrome trace: without clocks, order is time") {
  const MemoryTrace trace = test::training_trace(8, 2, false);
  REQUIRE(trace.times.empty());
  const json file = json::parse(chrome_trace_json(trace));
  check_monotonic(file);
  check_counters(trace, file);
  const std::vector<json> kernels = category(file, "kernel");
  REQUIRE(kernels.size() == trace.calls.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    REQUIRE(kernels[i]["name"] == trace.calls[i].kernel);
    REQUIRE(kernels[i]["ts"] == static_cast<double>(trace.calls[i].at));
  }
}

TEST_CASE("chrome trace: several kernels of a call, and calls that were not timed") {
  MemoryTrace trace = test::training_trace(8, 1);
  const KernelTime first = trace.times[3];
  trace.times.erase(trace.times.begin() + 5);
  trace.times.insert(trace.times.begin() + 4, {.call = 3,
                                               .kernel = "matrix_reduce",
                                               .start_us = first.end_us,
                                               .end_us = first.end_us + 0.5});
  const json file = json::parse(chrome_trace_json(trace));
  check_monotonic(file);
  check_counters(trace, file);
  const std::vector<json> kernels = category(file, "kernel");
  REQUIRE(kernels.size() == trace.times.size());
  CHECK(kernels[4]["name"] == "matrix_reduce");
  CHECK(kernels[4]["args"]["op"] == trace.calls[3].op);
}

TEST_CASE("timeline: files") {
  const TemporaryFolder folder;
  const MemoryTrace trace = test::training_trace(2, 1);
  write_timeline_html(folder.path / "new" / "t.html", trace);
  write_chrome_trace(folder.path / "t.json", trace);
  CHECK(test::bytes_of(folder.path / "new" / "t.html") == timeline_html(trace));
  CHECK(test::bytes_of(folder.path / "t.json") == chrome_trace_json(trace));

  // One path leads through a file, and one is a folder.
  for (const fs::path& bad : {folder.path / "t.json" / "x", folder.path / "new"}) {
    for (const auto write : {write_timeline_html, write_chrome_trace}) {
      std::string message;
      try {
        write(bad, trace);
      } catch (const FileError& error) {
        message = error.what();
      }
      CHECK(message.find(bad.string()) != std::string::npos);
    }
  }
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 2);
  CHECK(std::distance(fs::directory_iterator(folder.path / "new"), {}) == 1);

  MemoryTrace broken = trace;
  broken.times[0].call = broken.calls.size();
  CHECK_THROWS_AS(timeline_html(broken), ValueError);
  CHECK_THROWS_AS(chrome_trace_json(broken), ValueError);
}

TEST_SUITE_END();
