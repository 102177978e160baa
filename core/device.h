// A device: one backend, its arena, and the account of its memory.
#pragma once

#include <memory>
#include <unordered_set>

#include "core/arena.h"
#include "core/backend.h"
#include "core/memory_report.h"

namespace rw {

class Device;

// What one checkpoint segment spares: bytes of values that a vjp will read and that were freed.
struct SpareAccount {
  uint64_t bytes = 0;
  bool open = true;  // until the values are replayed or no longer wanted
};

// A byte range of the device's arena, given back when the last reference goes. One in-order queue
// per device makes reuse after free safe without waiting for the host.
class Storage {
 public:
  Storage(std::shared_ptr<Device> device, uint64_t bytes, bool half, Purpose purpose);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device() const { return *device_; }
  const Arena::Range& range() const { return range_; }
  uint64_t bytes() const { return bytes_; }
  Purpose purpose() const { return purpose_; }
  const char* op() const { return op_; }  // the op that allocated it

  uint64_t id() const { return id_; }  // unique, never reused
  void set_purpose(Purpose purpose);   // an activation that becomes a gradient

  // Counts visible writes (optimizer updates, copy_); saved values are checked against it.
  uint32_t version = 0;
  std::shared_ptr<SpareAccount> spared;  // set when freeing this storage is a segment's doing

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  Arena::Range range_;
  uint64_t bytes_;
  bool half_;
  Purpose purpose_;
  const char* op_;
  uint64_t id_;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // `memory_limit`: most bytes of blocks to hold, 0 for no limit but the device's.
  static std::shared_ptr<Device> create(std::unique_ptr<Backend> backend, uint64_t memory_limit = 0);
  ~Device();

  Backend& backend() { return *backend_; }
  const DeviceInfo& info() const { return backend_->info(); }

  std::shared_ptr<Storage> allocate(uint64_t bytes, bool half, Purpose purpose);

  MemoryReport memory_report() const;
  void reset_peak();      // peaks start again from what is live
  void end_step();        // closes the account of one training step (`naive`)
  void trim();            // gives wholly free blocks back to the driver

  // Counters for the savings lines of the report.
  void note_inplace(Storage& storage);            // an op writes over its input
  void close(SpareAccount& account);              // the segment's values are back or gone
  void note_accumulation(uint32_t micro_batches); // this many micro-batches share one's memory

  void synchronize() { backend_->synchronize(); }

 private:
  friend class Storage;
  explicit Device(std::unique_ptr<Backend> backend, uint64_t memory_limit);
  Arena::Range take(uint64_t bytes);
  bool grow(uint64_t bytes);
  void release(Storage& storage);
  void count_spared(Storage& storage);
  void update_peaks(uint64_t momentary = 0);
  [[noreturn]] void out_of_memory(uint64_t bytes) const;

  std::unique_ptr<Backend> backend_;
  Arena arena_;
  MemoryReport report_;
  std::unordered_set<const Storage*> storages_;
  uint64_t requested_live_ = 0, half_live_ = 0, step_allocated_ = 0, step_start_ = 0;
  uint64_t dropped_ = 0;
  uint32_t micro_batches_ = 1;
};

// The device that new tensors are made on. default_device throws DeviceError before the first set.
std::shared_ptr<Device> set_default_device(std::unique_ptr<Backend> backend, uint64_t memory_limit = 0);
void set_default_device(std::shared_ptr<Device> device);
const std::shared_ptr<Device>& default_device();

// Allocations in this scope are accounted under `purpose` (per thread).
class PurposeScope {
 public:
  explicit PurposeScope(Purpose purpose);
  ~PurposeScope();
  PurposeScope(const PurposeScope&) = delete;
  PurposeScope& operator=(const PurposeScope&) = delete;
  static Purpose current();

 private:
  Purpose previous_;
};

// Names the running op for allocations and error messages (per thread).
class OpScope {
 public:
  explicit OpScope(const char* op);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
  static const char* current();

 private:
  const char* previous_;
};

}  // namespace rw
