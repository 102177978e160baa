// The records of a tape by index. Indices are never reused, since old handles may still name them.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "record.h"

namespace rw {

// A queue of records that keeps their indices.
class Records {
 public:
  int64_t begin() const { return begin_; }  // of the oldest record
  int64_t end() const { return begin_ + static_cast<int64_t>(list_.size()); }  // of the next record

  // Tells whether a record has this index, freed or not.
  bool contains(int64_t index) const { return index >= begin_ && index < end(); }

  // Returns the record of a contained index, without a check.
  Record& operator[](int64_t index) { return list_[static_cast<size_t>(index - begin_)]; }
  const Record& operator[](int64_t index) const {
    return list_[static_cast<size_t>(index - begin_)];
  }
  // Returns null if it was freed or not recorded yet.
  Record* find(int64_t index) {
    return contains(index) && (*this)[index].op ? &(*this)[index] : nullptr;
  }
  const Record* find(int64_t index) const { return const_cast<Records*>(this)->find(index); }

  // Frees the record of a contained index and returns it: its handles must die after it has left.
  Record take(int64_t index) {
    Record dead = std::move((*this)[index]);
    (*this)[index].op = nullptr;
    (*this)[index].segment = -1;
    return dead;
  }
  // Appends the record `end()`.
  void push_back(Record&& record) { list_.push_back(std::move(record)); }
  // Drops all records; the next one gets the index that it would have had.
  void clear() {
    begin_ = end();
    List dead;
    dead.swap(list_);  // handles die after the records have left
  }

 private:
  using List = std::deque<Record, Recycled<Record>>;
  List list_;
  int64_t begin_ = 0;
};

}  // namespace rw
