// A recompute plan: which ranges of a recorded forward pass to drop and replay in backward.
//
// It is a forest of segments. Values made inside a segment are dropped in forward, unless
// somebody after the segment reads them or the plan keeps them. When backward reaches a record of a
// segment whose vjp reads a saved value, the segment is replayed: only the records that make saved
// values of its own records, or what its child segments read from outside themselves. Child
// segments stay dropped until backward reaches them. This is what core/autograd/replay.cpp does;
// nested segments are the persistent schedules of Beaumont et al. 2019.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rw {

// The treatment of the activations of forward passes: segments, and the values in them that are
// kept.
struct Plan {
  // A range of records that is dropped and replayed.
  struct Segment {
    uint32_t first = 0, last = 0;  // records [first, last)
    int32_t parent = -1;           // index of the enclosing segment
  };
  // A value made inside segments that is not dropped: output `slot` of record `record`. It exists
  // from the forward pass on or, in a nested segment, from a replay around it, until its innermost
  // segment has been replayed.
  struct Output {
    uint32_t record = 0, slot = 0;
    int32_t replay = -1;  // the segment whose replay makes it; -1: the forward pass
  };
  // In forward order, parents before children; empty: everything is kept.
  std::vector<Segment> segments;
  std::vector<Output> keep;  // in any order
  // By record, the names of the ops that the plan was made for. If the program departs from them,
  // the plan is left: the rest of the pass is evicted if a budget demands it, and kept otherwise.
  std::vector<std::string> signature;
  // The plan has no segments and keeps everything until an allocation would exceed the device's
  // budget, and then drops values that are cheap to recompute, large and old (Kirisame et al. 2021,
  // "Dynamic tensor rematerialization").
  bool evicts = false;

  double cost = 0;    // of all replays, in the graph's unit
  uint64_t peak = 0;  // bytes of activations and their gradients, by evaluate()
};

}  // namespace rw
