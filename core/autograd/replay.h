// Replay: recomputes dropped values of a checkpoint segment from the values that the segment holds.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "records.h"
#include "segments.h"

namespace rw {

class Replay {
 public:
  Replay(Records& records, Segments& segments, int segment)
      : records_(records), segments_(segments), number_(segment), segment_(segments[segment]) {}

  // Brings back only the values that the vjps of the segment's own records (those that backward
  // reaches) and its child segments read. Returns the number of records that ran.
  uint64_t run();
  // The same for one record of a segment that evicts.
  uint64_t run_for(Record& record);

  using Makers = ByValue<int64_t>;  // values and the records that make them
  // Makes an evicting segment keep these values from now on, and no others that a replay can make.
  // From the first missing one on, they are made in the order of the forward pass, in the memory
  // that they took there. If that throws, dropped values can still be recomputed.
  uint64_t keep_only(const Makers& wanted);

 private:
  Makers wanted() const;
  bool is_kept_for_child(int64_t record) const;
  void hand_out();
  uint64_t make(const Makers& wanted);
  std::vector<int64_t> plan(const Makers& wanted) const;
  void pin(const Makers& wanted, const std::vector<int64_t>& plan);
  void run_record(int64_t index, const Makers& wanted, const Makers& last_reader);
  Tensor take(const Edge& edge, bool is_last_use);
  Saved value(const ValueKey& key) const;
  void give(Record& record);

  Records& records_;
  Segments& segments_;
  int number_;
  Segment& segment_;
  ByValue<Tensor> values_;  // made or pinned, and still needed
};

}  // namespace rw
