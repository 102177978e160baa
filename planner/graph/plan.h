// A recompute plan: which ranges of a recorded forward pass to drop and replay in backward, and
// which values to send to host memory meanwhile.
//
// It is a forest of segments. Values made inside a segment are dropped in forward, unless
// somebody after the segment reads them or the plan keeps them. When backward reaches a record of a
// segment whose vjp reads a saved value, the segment is replayed: only the records that make saved
// values of its own records, or what its child segments read from outside themselves. Child
// segments stay dropped until backward reaches them. This is what core/autograd/replay.cpp does;
// nested segments are the persistent schedules of Beaumont et al. 2019. What is kept or held for
// backward may lie in host memory until then (as in Beaumont et al. 2021, "Efficient combination of
// rematerialization and offloading for training DNNs"); the copies cost time, and no replay. Where
// the user allows it, it may stay on the device in 8 bits (as in Chen et al. 2021, "ActNN").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rw {

// The treatment of the activations of forward passes: segments, the values in them that are kept,
// and the values that lie elsewhere until backward needs them.
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
  // A value that leaves its memory as soon as record `after` has run, the last one of the forward
  // pass that reads it: it goes to host memory, or is packed in 8 bits. The first kernel that reads
  // it again brings it back. Nothing happens where nobody holds it. In 8 bits, it comes back with
  // errors, so nothing happens either unless only vjps read it again: its maker and all of its
  // readers are outside of segments.
  struct Offload {
    uint32_t record = 0, slot = 0;  // that makes it
    uint32_t after = 0;
    bool in_8_bits = false;  // it is packed
  };
  // In forward order, parents before children; empty: everything is kept.
  std::vector<Segment> segments;
  std::vector<Output> keep;       // in any order
  std::vector<Offload> offloads;  // by rising `after`
  // By record, the names of the ops that the plan was made for. If the program departs from them,
  // the plan is left: the rest of the pass is evicted if a budget demands it, and kept otherwise.
  std::vector<std::string> signature;
  // The plan has no segments and keeps everything until an allocation would exceed the device's
  // budget, and then drops values that are cheap to recompute, large and old (Kirisame et al. 2021,
  // "Dynamic tensor rematerialization").
  bool evicts = false;

  // Whether forward and backward run as if there were no plan.
  bool is_plain() const { return segments.empty() && offloads.empty(); }

  double cost = 0;         // of all replays and offloads, in the graph's unit
  uint64_t peak = 0;       // bytes of activations and their gradients, by evaluate()
  uint64_t offloaded = 0;  // bytes that go to host memory, likewise
  uint64_t in_8_bits = 0;  // bytes of the values that are packed, likewise
};

}  // namespace rw
