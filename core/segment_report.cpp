// Judges checkpoint segments between forward and backward.
#include <fmt/format.h>

#include "core/tape.h"

namespace rw {

namespace {

using Contents = std::unordered_map<uint64_t, uint64_t>;  // root -> bytes

uint64_t sum(const Contents& contents) {
  uint64_t bytes = 0;
  for (const auto& [root, size] : contents) bytes += size;
  return bytes;
}

std::string problem_of(const SegmentReport& report, bool reads_inner) {
  if (report.records == 0) return "it is empty: no op was recorded inside";
  if (!reads_inner)
    return "no gradient inside reads a value that was made inside: there is nothing to drop";
  if (report.spared == 0)
    return "all that its gradients read is kept anyway, by its neighbours or its policy";
  if (report.held >= report.spared)
    return fmt::format("it keeps {} of inputs for its replay and spares only {}",
                       format_bytes(report.held), format_bytes(report.spared));
  return "";
}

}  // namespace

std::vector<SegmentReport> Tape::segment_reports() const {
  std::unordered_map<uint64_t, int>
      plain;  // roots that a plain run keeps -> records that read them
  std::unordered_map<uint64_t, uint64_t> root;  // of every value id
  for (const Record& record : records_) {
    if (!record.op) continue;
    each_saved(record, [&](const Edge& e, const Saved&) { ++plain[e.root]; });
    for (const Edge& e : record.inputs) root[e.id] = e.root;
    for (const Edge& e : record.outputs) root[e.id] = e.root;
  }
  std::unordered_map<uint64_t, int> held_by;  // roots held by segments or kept
  for (const SegmentRange& segment : segments_) {
    for (const auto& [id, external] : segment.externals)
      if (external.value.tensor.defined()) ++held_by[root[id]];
    for (const auto& [id, value] : segment.kept) ++held_by[root[id]];
  }

  std::vector<SegmentReport> reports;
  for (size_t s = 0; s < segments_.size(); ++s) {
    const SegmentRange& segment = segments_[s];
    if (segment.last < 0) continue;
    SegmentReport report{.segment = static_cast<int>(s), .parent = segment.parent};
    Contents inner, held;
    std::unordered_map<uint64_t, int> inner_reads;
    for (int64_t i = std::max(segment.first, base_); i < segment.last; ++i) {
      const Record* record = find(i);
      if (!record) continue;
      ++report.records;
      report.replay.flops += record->cost.flops;
      report.replay.bytes += record->cost.bytes;
      each_saved(*record, [&](const Edge& e, const Saved&) {
        ++inner_reads[e.root];
        if (e.record >= 0 && segment.contains(e.record)) inner[e.root] = e.bytes;
      });
      for (const Edge& e : record->inputs) {
        const auto external = segment.externals.find(e.id);
        const bool holds =
            external != segment.externals.end() && external->second.value.tensor.defined();
        if (holds && e.record >= 0 && !plain.contains(e.root)) held[e.root] = e.bytes;
      }
    }
    const bool reads_inner = !inner.empty();
    std::erase_if(inner, [&](const auto& content) {
      return held_by.contains(content.first) || plain[content.first] > inner_reads[content.first];
    });
    report.spared = sum(inner);
    report.held = sum(held);
    report.problem = problem_of(report, reads_inner);
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace rw
