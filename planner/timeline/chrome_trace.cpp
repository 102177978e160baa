// Writes the trace event format of chrome://tracing, which Perfetto reads too.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/base/error.h"
#include "core/files/file.h"
#include "planner/timeline/timeline.h"

namespace rw {

using nlohmann::json;

namespace {

constexpr int process = 1;
enum Thread { kernel_thread = 1, op_thread = 2 };

// Microseconds at which calls were queued: as measured, or by their order if nothing was measured.
std::vector<double> queue_times(const MemoryTrace& trace) {
  const bool measured = std::any_of(trace.calls.begin(), trace.calls.end(),
                                    [](const TracedCall& call) { return call.host_us > 0; });
  std::vector<double> times;
  double latest = 0;
  for (const TracedCall& call : trace.calls) {
    latest = std::max(latest, measured ? call.host_us : static_cast<double>(call.at));
    times.push_back(latest);
  }
  return times;
}

// When each kernel ran, on the host's clock. The two clocks are aligned by the least shift with
// which no kernel starts before it was queued.
std::vector<KernelTime> kernel_spans(const MemoryTrace& trace, const std::vector<double>& queued) {
  std::vector<KernelTime> spans = trace.times;
  if (spans.empty()) {
    for (size_t i = 0; i < trace.calls.size(); ++i)
      spans.push_back({i, trace.calls[i].kernel, queued[i],
                       i + 1 < queued.size() ? queued[i + 1] : queued[i] + 1});
    return spans;
  }
  double shift = 0;
  for (const KernelTime& span : spans) shift = std::max(shift, queued[span.call] - span.start_us);
  for (KernelTime& span : spans) {
    span.start_us += shift;
    span.end_us = std::max(span.end_us + shift, span.start_us);
  }
  return spans;
}

// Rounds to nanoseconds, the format's resolution: spans that touch do so in every reader.
double rounded(double us) {
  return std::round(us * 1000) / 1000;
}

// Turns positions in the trace into microseconds. The device works in order, so an event after a
// call lies between its end and the start of the next call.
class TraceClock {
 public:
  TraceClock(const MemoryTrace& trace, const std::vector<KernelTime>& spans) {
    std::map<uint64_t, Span> timed;  // by call
    for (const KernelTime& kernel : spans) {
      Span& span = timed[kernel.call];
      span.start = std::min(span.start, kernel.start_us);
      span.end = std::max(span.end, kernel.end_us);
    }
    double latest = 0;
    const auto add = [&](double at, double us) {
      latest = std::max(latest, us);
      knots_.push_back({at, latest});
    };
    for (auto entry = timed.begin(); entry != timed.end(); ++entry) {
      const auto& [call, span] = *entry;
      const auto at = static_cast<double>(trace.calls[call].at);
      add(at, span.start);
      const auto next = std::next(entry);
      if (next == timed.end())
        add(at + 1, span.end);
      else if (static_cast<double>(trace.calls[next->first].at) > at + 1)
        add(at + 1, std::min(span.end, next->second.start));
    }
  }

  double operator()(uint64_t position) const {
    const auto at = static_cast<double>(position);
    if (knots_.empty()) return at;
    const auto next =
        std::upper_bound(knots_.begin(), knots_.end(), at,
                         [](double value, const Knot& knot) { return value < knot.at; });
    if (next == knots_.begin()) return next->us;
    const Knot& before = *(next - 1);
    if (next == knots_.end()) return before.us;
    return before.us + (at - before.at) / (next->at - before.at) * (next->us - before.us);
  }

 private:
  struct Span {
    double start = INFINITY, end = 0;
  };
  struct Knot {
    double at, us;
  };
  std::vector<Knot> knots_;
};

json span_event(const std::string& what, const char* category, Thread thread, double start,
                double end, json args) {
  return {{"name", what},
          {"cat", category},
          {"ph", "X"},
          {"pid", process},
          {"tid", thread},
          {"ts", rounded(start)},
          {"dur", rounded(std::max(rounded(end) - rounded(start), 0.0))},
          {"args", std::move(args)}};
}

void add_kernels(const MemoryTrace& trace, const std::vector<KernelTime>& spans, json& events) {
  for (const KernelTime& span : spans) {
    const TracedCall& call = trace.calls[span.call];
    json args = {{"op", call.op},
                 {"phase", name(call.phase)},
                 {"flops", call.flops},
                 {"bytes", call.bytes},
                 {"call", span.call}};
    if (call.segment >= 0) args["segment"] = call.segment;
    events.push_back(span_event(span.kernel, "kernel", kernel_thread, span.start_us, span.end_us,
                                std::move(args)));
  }
}

// Phases with the ops in them. Each lasts until the next one is queued.
void add_ops(const MemoryTrace& trace, const std::vector<double>& queued, json& events) {
  const std::vector<TracedCall>& calls = trace.calls;
  const auto runs = [&](auto same, auto add) {
    for (size_t first = 0, next; first < calls.size(); first = next) {
      for (next = first + 1; next < calls.size() && same(calls[first], calls[next]);) ++next;
      add(calls[first], queued[first], next < calls.size() ? queued[next] : queued.back() + 1);
    }
  };
  const auto same_phase = [](const TracedCall& a, const TracedCall& b) {
    return a.phase == b.phase && a.segment == b.segment;
  };
  runs(same_phase, [&](const TracedCall& call, double start, double end) {
    const std::string segment = call.segment < 0 ? "" : fmt::format(", segment {}", call.segment);
    events.push_back(
        span_event(name(call.phase) + segment, "phase", op_thread, start, end, json::object()));
  });
  const auto same_op = [&](const TracedCall& a, const TracedCall& b) {
    return same_phase(a, b) && a.op == b.op;
  };
  runs(same_op, [&](const TracedCall& call, double start, double end) {
    events.push_back(
        span_event(call.op, "op", op_thread, start, end, {{"phase", name(call.phase)}}));
  });
}

// Live bytes by purpose at every change.
void add_counters(const MemoryTrace& trace, const TraceClock& clock, json& events) {
  struct Change {
    uint64_t at;
    Purpose purpose;
    int64_t bytes;
  };
  std::vector<Change> changes;
  for (const TracedTensor& tensor : trace.tensors) {
    changes.push_back({tensor.begin, tensor.purpose, static_cast<int64_t>(tensor.bytes)});
    if (tensor.end != UINT64_MAX)
      changes.push_back({tensor.end, tensor.purpose, -static_cast<int64_t>(tensor.bytes)});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.at < b.at; });
  std::array<int64_t, purpose_count> live{};
  for (size_t i = 0; i < changes.size(); ++i) {
    live[static_cast<size_t>(changes[i].purpose)] += changes[i].bytes;
    if (i + 1 < changes.size() && changes[i + 1].at == changes[i].at) continue;
    json args;
    for (int p = 0; p < purpose_count; ++p)
      args[name(static_cast<Purpose>(p))] = live[static_cast<size_t>(p)];
    events.push_back({{"name", "live bytes"},
                      {"ph", "C"},
                      {"pid", process},
                      {"ts", rounded(clock(changes[i].at))},
                      {"args", std::move(args)}});
  }
  uint64_t reserved = 0;
  for (const uint64_t bytes : trace.block_bytes) reserved += bytes;
  for (const uint64_t at : {uint64_t{0}, trace.end})
    events.push_back({{"name", "reserved bytes"},
                      {"ph", "C"},
                      {"pid", process},
                      {"ts", rounded(clock(at))},
                      {"args", {{"reserved", reserved}}}});
}

void add_steps(const MemoryTrace& trace, const TraceClock& clock, json& events) {
  for (size_t i = 0; i < trace.steps.size(); ++i)
    events.push_back({{"name", fmt::format("step {} ends", i + 1)},
                      {"cat", "step"},
                      {"ph", "i"},
                      {"s", "g"},
                      {"pid", process},
                      {"tid", op_thread},
                      {"ts", rounded(clock(trace.steps[i]))}});
}

json metadata(const char* what, int thread, const std::string& text) {
  return {{"name", what},  {"ph", "M"}, {"pid", process},
          {"tid", thread}, {"ts", 0},   {"args", {{"name", text}}}};
}

}  // namespace

std::string chrome_trace_json(const MemoryTrace& trace) {
  for (const KernelTime& time : trace.times)
    check(time.call < trace.calls.size(), "chrome trace",
          "kernel times must belong to traced calls, got call {} of {}", time.call,
          trace.calls.size());
  const std::vector<double> queued = queue_times(trace);
  const std::vector<KernelTime> spans = kernel_spans(trace, queued);
  const TraceClock clock(trace, spans);
  json events = json::array();
  add_kernels(trace, spans, events);
  add_ops(trace, queued, events);
  add_counters(trace, clock, events);
  add_steps(trace, clock, events);
  // Stable: a phase comes before its first op, which starts with it.
  std::stable_sort(events.begin(), events.end(),
                   [](const json& a, const json& b) { return a["ts"] < b["ts"]; });
  json all = {metadata("process_name", 0, trace.device.empty() ? "device" : trace.device),
              metadata("thread_name", kernel_thread,
                       trace.times.empty() ? "kernels (as queued)" : "kernels"),
              metadata("thread_name", op_thread, "ops (as queued)")};
  for (json& event : events) all.push_back(std::move(event));
  const json file = {{"traceEvents", std::move(all)}, {"displayTimeUnit", "ms"}};
  return file.dump(-1, ' ', false, json::error_handler_t::replace);
}

void write_chrome_trace(const std::filesystem::path& path, const MemoryTrace& trace) {
  const std::string text = chrome_trace_json(trace);
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace rw
