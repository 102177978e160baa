// Evicting segments: what backward does with them.
#pragma once

#include "rewind/core/autograd/tape.h"

namespace rw {

class Rematerializer {
 public:
  Rematerializer(Tape& tape, int segment) : tape_(tape), segment_(tape.segments_[segment]) {}

  // Brings back what the record's vjp reads.
  void prepare(Record& record);
  // The record's vjp is done: nobody wants its outputs any more.
  void forget(const Record& record);
  // Drops values worth at least `wanted` bytes, or all it can; false if there was none.
  bool evict(uint64_t wanted);

 private:
  bool at_hand(const Edge& edge) const;
  double cost(int64_t record) const;
  Saved take(const Edge& edge);
  void make(const Edge& wanted);
  void run(int64_t record, std::span<const Saved> pinned);

  Tape& tape_;
  Segment& segment_;
};

// Drops values of the tape's evicting segments until `bytes` are free; false if nothing could be
// dropped.
bool evict(Tape& tape, uint64_t bytes);

}  // namespace rw
