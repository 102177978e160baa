// The worth of checkpoint segments, judged between forward and backward.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../core/autograd/tape.h"

namespace rw {

// The effect of one checkpoint segment, by its number; `parent` is the segment around it, or -1.
struct SegmentReport {
  int segment = -1, parent = -1;
  int64_t records = 0;  // the number of records that it spans
  uint64_t spared = 0;  // bytes that a plain run would keep and this one does not
  uint64_t held = 0;    // bytes kept only so that the segment can be replayed
  OpCost replay;        // the replay that it adds; an upper bound where that was not measured
  // The most bytes alive in forward and backward, as far as the tape knows, by a dry run of its
  // records: with and without this segment. 0 if not measured.
  uint64_t peak = 0, peak_without = 0;

  std::string problem;  // empty, or what is wrong with it, why, and what to do
};

// Reports on the tape's closed segments. A segment that raises the peak, or does not lower it, has
// a problem: the records run again on a dry device with and without each segment (with very many
// records and segments, with and without all of them). `loss` is what backward will start from; if
// undefined, it is the newest value that needs a gradient.
std::vector<SegmentReport> segment_reports(const Tape& tape, const Tensor& loss = {});
// Passes segment_reports(loss) to the receiver at the start of the tape's next backward.
void report_segments(Tape& tape, std::function<void(std::vector<SegmentReport>)> receiver);

}  // namespace rw
