// The checkpoint segments of a tape: the records that they span, and the values that they hold and
// keep.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "records.h"

namespace rw {

// A value from outside a segment that its records read. Undefined while it is an inner value of an
// enclosing segment that has not been replayed.
struct External {
  Saved value;
  int64_t record = -1;  // the record that made it
  int64_t readers = 0;  // inputs of records that are not freed
};

// Asks whether a segment keeps the outputs of a record instead of recomputing them.
struct SaveQuery {
  const char* op;  // its name, or the name that the user gave the value (checkpoint_name)
  OpCost cost;     // of running it once
  uint64_t bytes;  // of the outputs
  bool is_heavy;   // Op::is_heavy
};
using SavePolicy = std::function<bool(const SaveQuery&)>;

// An inner value of a segment that exists.
struct Kept {
  Saved value;
  int64_t record = -1;        // the record that made it
  uint64_t used = 0;          // the time of the last use, by Segments::tick()
  bool is_only_copy = false;  // no replay makes it again (Tape::is_only_copy, Op::is_kept)
};

// A checkpoint segment: a range of records whose inner values are dropped when their handles die,
// and replayed in backward.
struct Segment {
  uint64_t serial = 0;           // unlike its number, never reused
  int parent = -1;               // number of the segment around it; -1: none
  std::vector<int> children;     // numbers of those inside it, in order
  SavePolicy policy;             // empty: it keeps nothing
  int64_t first = 0, last = -1;  // records [first, last); last == -1 while the scope is open
  bool replayed = false;
  int64_t alive = 0;            // records of this segment and those inside it that are not freed
  ByValue<External> externals;  // values from outside
  ByValue<Kept> kept;           // inner values that exist anyway
  // The inner values of child segments that its replay keeps for them, and their records.
  ByValue<int64_t> replay_keeps;
  // Keeps the values that vjps read until memory is wanted, and replays value by value.
  bool evicts = false;

  void release();  // its records are gone
  // Nobody wants its outputs any more, but for those that no replay makes, unless `for_good`.
  void forget(const Record& record, bool for_good);

  // Tells whether the value exists here: kept, or held from outside.
  bool has(const ValueKey& key) const { return keeps(key) || externals.contains(key); }
  // Tells whether it is kept, and nobody has written to it.
  bool keeps(const ValueKey& key) const {
    const auto found = kept.find(key);
    return found != kept.end() && found->second.value.is_intact();
  }
  // Returns that value, undefined if it does not exist. One from outside may have been written to.
  Saved value(const ValueKey& key) const;
  // Tells whether a record of it reads the present contents of the storage, not just a view of
  // them.
  bool reads(const Records& records, const Storage& storage) const;
  // Tells whether it spans the record with this index.
  bool contains(int64_t record) const { return record >= first && (last < 0 || record < last); }
};

// Segments by number, in the order in which they were opened: parents before children.
class Segments {
 public:
  // A segment, by its number and by its serial, which stays valid when the tape is cleared and
  // numbers are reused.
  struct Handle {
    int number = -1;
    uint64_t serial = 0;
  };
  // Opens a segment inside the innermost open one, from record `first` on.
  Handle open(int64_t first, SavePolicy policy, bool evicts);
  // Ends the open segments before record `last`, for a backward inside them; -1: open-ended
  // again.
  void end_open(int64_t last);
  bool is_open(int segment) const;
  // Closes it before record `last`, with everything inside it that is still open. Returns false if
  // it was closed already.
  bool close(const Handle& segment, int64_t last);

  int innermost() const { return open_; }  // the number of the open one; -1: none
  // Tells whether the innermost open segment evicts.
  bool is_evicting() const { return open_ >= 0 && list_[static_cast<size_t>(open_)].evicts; }
  // Tells whether the value was made inside the innermost open segment.
  bool is_inner(const Edge& edge) const;

  // Takes the input of a record in the innermost segment: keeps it there, or holds it from outside.
  // `is_only_copy` says that no replay makes it again.
  void take(const Edge& edge, Saved value, bool is_only_copy);
  // Keeps outputs of record `index` in all open segments, if one of them needs them: all of them if
  // a policy says so, else those in `wanted` (bit i: output i).
  void keep(const Record& record, int64_t index, std::span<const Tensor> outputs, uint32_t wanted);
  // Gives segments their own copies of what they hold of a storage that is about to be written,
  // where a replay would read it. A view alone reads nothing.
  void copy_before_write(const Records& records, const Storage& storage);
  // Releases the values that segments hold for a record that nobody will replay.
  void let_go(const Record& dead);
  // Counts one record more or less, in `segment` and those around it.
  void count_record(int segment, int64_t change);
  // Forgets all segments; their numbers are reused.
  void clear();

  uint64_t tick() { return ++clock_; }     // for Kept::used
  uint64_t now() const { return clock_; }  // the last tick

  // By number, in [0, size()); no check.
  Segment& operator[](int number) { return list_[static_cast<size_t>(number)]; }
  const Segment& operator[](int number) const { return list_[static_cast<size_t>(number)]; }

  int size() const { return static_cast<int>(list_.size()); }  // opened since the last clear()
  const std::vector<Segment>& all() const { return list_; }    // by number

 private:
  int maker(const Edge& edge, int segment) const;
  void hold(const Edge& edge, const Saved& value);

  std::vector<Segment> list_;
  int open_ = -1;
  uint64_t clock_ = 0, next_serial_ = 1;
};

}  // namespace rw
