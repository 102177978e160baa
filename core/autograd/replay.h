// Replay of one checkpoint segment: brings back what the vjps of its own records and its child
// segments read, and nothing else.
#pragma once

#include "rewind/core/autograd/tape.h"

namespace rw {

// The value as an input of a record that is replayed. AutogradError if it was written to.
Tensor replay_input(const Saved& value);
[[noreturn]] void fail_missing(const Edge& value);  // AutogradError

class Replay {
 public:
  // `reachable`: by record index from the tape's base, which records' vjps will run.
  Replay(Tape& tape, int segment, const std::vector<bool>& reachable)
      : tape_(tape), id_(segment), segment_(tape.segments_[segment]), reachable_(reachable) {}
  void run();

 private:
  using Ids = std::unordered_set<uint64_t>;
  bool at_hand(uint64_t id) const;
  Ids wanted() const;
  std::vector<int64_t> plan(Ids needed) const;
  Tensor take(const Edge& edge, bool last_use);
  void execute(const std::vector<int64_t>& records, const Ids& keep);
  void verify(const Record& record, std::span<const Tensor> outputs) const;
  void hand_out(const Ids& keep);
  Saved at_hand_value(uint64_t id) const;
  bool reached(int64_t record) const;

  Tape& tape_;
  int id_;
  Segment& segment_;
  const std::vector<bool>& reachable_;
  std::unordered_map<uint64_t, Tensor> values_;  // replayed, still needed
};

}  // namespace rw
