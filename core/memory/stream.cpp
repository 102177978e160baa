#include "core/memory/stream.h"

#include <utility>

#include "core/base/context.h"
#include "core/base/thread_state.h"

namespace rw {

struct Stream::Slot {
  std::shared_ptr<Storage> storage;
  bool is_here = false;
  bool is_ahead = false;  // here, and not used yet
  uint64_t used = 0;      // when
};

Stream::Stream(std::vector<std::shared_ptr<Storage>> storages, StreamSource& source,
               const StreamOptions& options)
    : source_(source), options_(options) {
  for (size_t i = 0; i < storages.size(); ++i) {
    number_of_[storages[i].get()] = i;
    storages[i]->set_keeper(this);
    slots_.push_back({.storage = std::move(storages[i])});
    leave(i);
  }
  if (!slots_.empty()) slots_.front().storage->device().trim();
}

Stream::~Stream() {
  for (const Slot& slot : slots_) slot.storage->set_keeper(nullptr);
}

void Stream::need(std::span<Storage* const> storages) {
  if (is_gathered_ || !source_.begin_use(storages)) return;
  ++clock_;
  std::vector<size_t> missing;
  bool has_come = false;
  for (const Storage* storage : storages) {
    const auto found = number_of_.find(storage);
    if (found == number_of_.end()) continue;
    Slot& slot = slots_[found->second];
    if (!slot.is_here && slot.used != clock_) missing.push_back(found->second);
    slot.used = clock_;
    if (!std::exchange(slot.is_ahead, false)) continue;
    note_use(found->second);
    has_come = true;
  }
  for (const size_t i : missing) {
    make_room(slots_[i].storage->bytes());
    source_.expect(i);
    if (source_.is_in_pass()) note_use(i);
    bring(i);
  }
  if (has_come || !missing.empty()) fill_next();
}

// The storages that the current kernel reads stay.
void Stream::make_room(uint64_t bytes) {
  while (here_ + bytes > options_.most_bytes) {
    size_t oldest = slots_.size();
    for (size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].is_here && slots_[i].used < clock_ &&
          (oldest == slots_.size() || slots_[i].used < slots_[oldest].used))
        oldest = i;
    if (oldest == slots_.size()) return;
    leave(oldest);
  }
}

// Once a window uses another storage than the window before, nothing is expected in the rest of it.
void Stream::note_use(size_t i) {
  wanted_.push_back(i);
  const bool is_expected = next_ < expected_.size() && expected_[next_] == i;
  next_ = is_expected ? next_ + 1 : expected_.size();
  if (options_.ahead && next_ < expected_.size()) source_.expect(expected_[next_]);
}

// It comes beside the kernel that is about to be queued, which does not use it.
void Stream::fill_next() {
  if (!options_.ahead || !source_.fills_ahead() || next_ == expected_.size()) return;
  Slot& slot = slots_[expected_[next_]];
  if (slot.is_here) return;
  make_room(slot.storage->bytes());
  if (here_ + slot.storage->bytes() > options_.most_bytes) return;
  bring(expected_[next_]);
  slot.is_ahead = true;
}

void Stream::bring(size_t i) {
  Slot& slot = slots_[i];
  Storage& storage = *slot.storage;
  if (!source_.is_pinned(i)) {
    const PurposeScope purpose(Purpose::workspace);
    const PlaceScope place(MemoryPlace::device);
    storage.device().swap_in(storage);
  }
  source_.fill(i, storage);
  slot.is_here = true;
  here_ += storage.bytes();
}

void Stream::leave(size_t i) {
  Slot& slot = slots_[i];
  Storage& storage = *slot.storage;
  if (std::exchange(slot.is_here, false)) here_ -= storage.bytes();
  slot.is_ahead = false;
  if (source_.is_pinned(i) || storage.is_swapped_out()) return;
  source_.before_leaving(i);
  storage.device().swap_out(storage);
}

void Stream::gather() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_here) continue;
    source_.expect(i);
    bring(i);
  }
  is_gathered_ = true;
}

void Stream::release() {
  is_gathered_ = false;
  drop();
}

void Stream::send_away(Storage& storage) {
  if (const auto found = number_of_.find(&storage); found != number_of_.end()) leave(found->second);
}

void Stream::drop() {
  for (size_t i = 0; i < slots_.size(); ++i) leave(i);
}

void Stream::end_window() {
  drop();
  expected_ = std::exchange(wanted_, {});
  next_ = 0;
}

}  // namespace rw
