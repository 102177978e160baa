// A piece of a device's memory, and the facts known about it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "../arena/pool.h"
#include "../base/dtype.h"
#include "../base/shape.h"
#include "../base/thread_state.h"

namespace rw {

class Device;
class Storage;
class WeightCopies;

// Learns when a storage dies.
class StorageOwner {
 public:
  virtual ~StorageOwner() = default;
  // Called when the storage is about to die, so that its range can be given to others.
  virtual void release(Storage& storage) noexcept = 0;
};

// Knows the contents of storages while their memory is away: parameters that ranks keep in parts,
// values that are kept in 8 bits.
class StorageKeeper {
 public:
  virtual ~StorageKeeper() = default;
  // Called when a kernel is about to be queued that uses these storages, at least one of which it
  // keeps: when it returns, none of them is away. Throws if they cannot be brought back.
  virtual void need(std::span<Storage* const> storages) = 0;
};

// A byte range of the device's arena, which the last reference gives back. One in-order queue per
// device makes reuse after a free safe without waiting for the host.
class Storage {
 public:
  Storage(std::shared_ptr<StorageOwner> owner, Device& device, const Shape& shape, DType dtype);
  ~Storage() { owner_->release(*this); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device() const { return device_; }                  // the device on which it lies
  const Arena::Range& range() const { return place_.range; }  // the range in which it lies
  uint64_t bytes() const { return bytes_; }                   // as asked for, without padding
  const Shape& shape() const { return shape_; }               // as first allocated
  DType dtype() const { return dtype_; }                      // the same

  MemoryPlace place() const {  // the kind of memory
    return place_.part == MemoryPool::Part::host ? MemoryPlace::host : MemoryPlace::device;
  }

  bool is_outside() const { return place_.part == MemoryPool::Part::outside; }  // Device::adopt()
  // Whether others know its address (Device::adopt, Device::pin): it stays where it is.
  bool stays() const { return is_outside() || place_.pins > 0; }

  // The context of its allocation: purpose, op, phase, segment.
  Purpose purpose() const { return made_.purpose; }
  const char* op() const { return made_.op; }
  const Context& made() const { return made_; }

  uint64_t id() const { return id_; }  // unique, never reused, and larger than all before
  static uint64_t newest();            // the id of the last storage that was made, on any device

  // The copies of its contents in other dtypes, or null if nobody keeps any (core/tensor).
  const std::shared_ptr<WeightCopies>& copies() const { return copies_; }
  void set_copies(std::shared_ptr<WeightCopies> copies) { copies_ = std::move(copies); }

  // The keeper of its contents, if its memory may be given back for a time (Device::swap_out).
  // The storage shares it, or it outlives that. The storage keeps its id, its writes so far, and
  // all views of it.
  const std::shared_ptr<StorageKeeper>& keeper() const { return keeper_; }
  void share_keeper(std::shared_ptr<StorageKeeper> keeper) { keeper_ = std::move(keeper); }
  void set_keeper(StorageKeeper* keeper) { keeper_ = {std::shared_ptr<void>(), keeper}; }
  bool is_swapped_out() const { return is_swapped_out_ || place_.range.size == 0; }
  // Whether it is away, and its contents are in host memory meanwhile.
  bool is_on_host() const { return is_swapped_out_ && host_.range.size > 0; }
  // From now on, its copy in host memory stays when its contents come to the device: it goes there
  // again without a copy, unless they were written.
  void keep_host_copy() { keeps_host_copy_ = true; }

  // Counts writes, which only Device can make; saved values are checked against it.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }

  // The number of its contents: another one after an op has taken over the memory for its result.
  uint64_t contents() const { return contents_; }
  void take_over();
  // From now on, writes to these contents are noted in the thread's state (ThreadState::writes),
  // for checkpoint segments, which drop the storage.
  void note_writes() { notes_writes_ = true; }
  bool notes_writes() const { return notes_writes_; }  // whether they are

 private:
  friend class Device;
  std::shared_ptr<StorageOwner> owner_;
  Device& device_;
  Context made_;
  Shape shape_;
  DType dtype_;
  uint64_t bytes_;
  uint64_t id_;
  MemoryPool::Allocation place_, host_;
  std::shared_ptr<WeightCopies> copies_;
  std::shared_ptr<StorageKeeper> keeper_;
  bool is_swapped_out_ = false, keeps_host_copy_ = false;
  uint32_t host_version_ = 0;                      // of the copy in host memory
  Storage *previous_ = nullptr, *next_ = nullptr;  // among the device's, in order of age
  std::atomic<uint32_t> version_ = 0;
  uint64_t contents_;
  bool notes_writes_ = false;  // Storage::note_writes()

  void count_write() {
    const uint32_t version = ++version_;
    if (notes_writes_) thread_state().writes[contents_] = version;
  }
};

}  // namespace rw
