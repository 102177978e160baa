#include "planner/follow/segment_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/follow/tape_rerun.h"

namespace rw {

namespace {

using Contents = std::unordered_map<uint64_t, uint64_t>;  // root -> bytes

uint64_t sum(const Contents& contents) {
  uint64_t bytes = 0;
  for (const auto& [root, size] : contents) bytes += size;
  return bytes;
}

// Tells what is wrong with a segment by what it drops and holds, whatever the peak.
std::string misplaced(const SegmentReport& report, bool reads_inner) {
  if (!reads_inner)
    return "no gradient inside reads a value that was made inside: there is nothing to drop";
  if (report.spared == 0)
    return "everything that its gradients read is kept anyway, by its neighbours or its policy";
  if (report.held >= report.spared)
    return fmt::format("it keeps {} of inputs for its replay and spares only {}",
                       format_bytes(report.held), format_bytes(report.spared));
  return "";
}

constexpr const char* remedy =
    "; leave this segment out, or let a search set the segments (planner/search/search.h)";

// Measures segments and names those that do harm.
class SegmentJudge {
 public:
  SegmentJudge(const TapeRerun& rerun, int segments) : rerun_(rerun), left_out_(segments) {
    all_ = rerun.run(left_out_);
  }

  bool measured() const { return all_.has_value(); }

  void judge(SegmentReport& report) {
    const auto s = static_cast<size_t>(report.segment);
    left_out_[s] = true;
    const std::optional<Forecast> without = rerun_.run(left_out_);
    left_out_[s] = false;
    report.peak = all_->memory.peak;
    if (!without) return report.problem.clear();  // the device is too small without it
    report.peak_without = without->memory.peak;
    const OpCost replay = replay_cost(all_->work), others = replay_cost(without->work);
    report.replay = {std::max(0.0, replay.flops - others.flops),
                     replay.bytes - std::min(replay.bytes, others.bytes)};
    if (report.peak_without > report.peak) {
      report.problem.clear();  // it is worth its memory, whatever it holds
      return;
    }
    const std::string why =
        report.problem.empty()
            ? "the values that it drops are back, or would be gone anyway, at the peak"
            : report.problem;
    report.problem =
        fmt::format("{}, and {}: {}{}", effect(*without), cost(report, *without), why, remedy);
  }

  // Judges all segments together where no single one does harm.
  void judge_all(std::vector<SegmentReport>& reports) {
    for (const SegmentReport& report : reports)
      if (!report.problem.empty()) return;
    const std::optional<Forecast> none = rerun_.run(std::vector<bool>(left_out_.size(), true));
    if (!none || none->memory.peak > all_->memory.peak) return;
    for (SegmentReport& report : reports) {
      report.peak = all_->memory.peak;
      report.problem = fmt::format(
          "together with the other segments, {}: leave all of them out, or let a search set them "
          "(planner/search/search.h)",
          effect(*none));
    }
  }

 private:
  std::string effect(const Forecast& without) const {
    const uint64_t peak = all_->memory.peak, peak_without = without.memory.peak;
    if (peak_without < peak)
      return fmt::format("it raises the peak from {} to {}", format_bytes(peak_without),
                         format_bytes(peak));
    return fmt::format("it does not lower the peak of {}", format_bytes(peak));
  }
  static std::string cost(const SegmentReport& report, const Forecast& without) {
    if (report.replay.flops > 0 && without.flops() > 0)
      return fmt::format("costs {:.1f} % more FLOPs", 100 * report.replay.flops / without.flops());
    if (report.replay.bytes > 0)
      return fmt::format("moves {} more", format_bytes(report.replay.bytes));
    return "replays nothing";
  }

  const TapeRerun& rerun_;
  std::vector<bool> left_out_;
  std::optional<Forecast> all_;
};

}  // namespace

std::vector<SegmentReport> segment_reports(const Tape& tape, const Tensor& loss) {
  const std::vector<Segment>& segments = tape.segments().all();
  std::unordered_map<uint64_t, int> plain;  // records that read each root that a plain run keeps
  std::unordered_map<uint64_t, uint64_t> root;  // by value id
  int64_t alive = 0;
  for (int64_t i = tape.begin(); i < tape.end(); ++i) {
    const Record* record = tape.find(i);
    if (!record) continue;
    ++alive;
    each_saved(*record, [&](const Edge& e) { ++plain[e.root]; });
    for (const Edge& e : record->inputs) root[e.id] = e.root;
    for (const Edge& e : record->outputs) root[e.id] = e.root;
  }
  std::unordered_map<uint64_t, int> held_by;  // how many segments hold or keep each root
  for (const Segment& segment : segments) {
    for (const auto& [key, external] : segment.externals)
      if (external.value.tensor.defined()) ++held_by[root[key.id]];
    for (const auto& [key, value] : segment.kept) ++held_by[root[key.id]];
  }

  std::vector<SegmentReport> reports;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    if (segment.last < 0) continue;
    SegmentReport report{.segment = static_cast<int>(s), .parent = segment.parent};
    Contents inner, held;
    std::unordered_map<uint64_t, int> inner_reads;
    for (int64_t i = std::max(segment.first, tape.begin()); i < segment.last; ++i) {
      const Record* record = tape.find(i);
      if (!record) continue;
      ++report.records;
      report.replay.flops += record->cost.flops;
      report.replay.bytes += record->cost.bytes;
      each_saved(*record, [&](const Edge& e) {
        ++inner_reads[e.root];
        if (e.record >= 0 && segment.contains(e.record)) inner[e.root] = e.bytes;
      });
      for (const Edge& e : record->inputs) {
        const auto external = segment.externals.find(e.key());
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
    report.problem = report.records == 0 ? "it is empty: no op was recorded inside"
                                         : misplaced(report, reads_inner);
    reports.push_back(std::move(report));
  }

  constexpr int64_t most_work = 300'000;  // the most records to run again
  const TapeRerun rerun(tape, loss);
  if (reports.empty() || !rerun.is_possible()) return reports;
  SegmentJudge judge(rerun, static_cast<int>(segments.size()));
  if (!judge.measured()) return reports;
  if (alive * static_cast<int64_t>(reports.size()) <= most_work)
    for (SegmentReport& report : reports)
      if (report.records > 0) judge.judge(report);
  judge.judge_all(reports);
  return reports;
}

void report_segments(Tape& tape, std::function<void(std::vector<SegmentReport>)> receiver) {
  tape.before_next_backward([&tape, receiver = std::move(receiver)](const Tensor& loss) {
    receiver(segment_reports(tape, loss));
  });
}

}  // namespace rw
