// A device: one backend, its arena, and the account of its memory.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "core/arena.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/memory_report.h"
#include "core/memory_trace.h"
#include "core/step_planner.h"

namespace rw {

class Device;
class Tracer;

// A byte range of the device's arena, given back when the last reference goes. One in-order queue
// per device makes reuse after free safe without waiting for the host.
class Storage {
 public:
  Storage(std::shared_ptr<Device> device, const Shape& shape, DType dtype);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device() const { return *device_; }
  const Arena::Range& range() const { return range_; }
  uint64_t bytes() const { return bytes_; }
  const Shape& shape() const { return shape_; }  // as first allocated
  DType dtype() const { return dtype_; }
  // Who allocated it: op, purpose, phase, segment.
  Purpose purpose() const { return made_.purpose; }
  const char* op() const { return made_.op; }
  const Context& made() const { return made_; }

  uint64_t id() const { return id_; }  // unique, never reused
  void set_purpose(Purpose purpose);   // an activation that becomes a gradient

  // Counts writes, which only Device can make; saved values are checked against it.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  Context made_;
  Shape shape_;
  DType dtype_;
  uint64_t bytes_;
  uint64_t id_;
  StepPlanner::Ticket ticket_;
  std::atomic<uint32_t> version_ = 0;
  bool lasting_ = false;  // in the arena of what outlives steps
  Arena::Range range_;
};

// Device work, by phase of the training step.
struct Work {
  double flops = 0;    // of matrix products, convolutions and attention
  uint64_t bytes = 0;  // read and written by kernels
  uint64_t calls = 0;  // kernels
};
using WorkByPhase = std::array<Work, phase_count>;

double total_flops(const WorkByPhase& work);      // recomputation included
double recompute_share(const WorkByPhase& work);  // FLOPs of replays over those of the rest
double modelled_recompute_share(const WorkByPhase& work);  // the same by OpCost::total()
OpCost replay_cost(const WorkByPhase& work);

// Any thread may use it: every call holds the device's one lock, and work runs in the order in which
// it was queued. Kernels, host copies, allocations and the account of memory are all behind it.
class Device : public std::enable_shared_from_this<Device> {
 public:
  // `memory_limit`: most bytes of blocks to hold, 0 for no limit but the device's.
  static std::shared_ptr<Device> create(std::unique_ptr<Backend> backend, uint64_t memory_limit = 0);
  ~Device();

  // To ask only: what works on memory goes through the device, which counts writes.
  const Backend& backend() const { return *backend_; }
  const DeviceInfo& info() const { return backend_->info(); }
  std::string str() const;  // "cpu 'AMD EPYC' (device 1)": no two are alike

  std::shared_ptr<Storage> allocate(const Shape& shape, DType dtype);
  // The one door for writes: whoever passes it names the storages that are written, and they count.
  void run(const KernelCall& call, std::span<Storage* const> written);
  void write(Storage& target, uint64_t offset, uint64_t bytes, const void* source);  // from the host
  void read(const Storage& source, uint64_t offset, uint64_t bytes, void* target);   // waits

  MemoryReport memory_report() const;
  void reset_peak();  // peaks and work start again, from what is live
  // A training step is over: its allocations are learnt, so that the next one like it is packed
  // tightly. Call it between steps, where only what outlives them is alive.
  void end_step();
  void trim();  // gives wholly free blocks back to the driver

  // Steps learnt on another device, by a dry run: they are laid out from the first one on.
  std::vector<StepTrace> step_traces() const;
  void learn(std::vector<StepTrace> traces);
  void set_packs_steps(bool on);

  uint64_t memory_limit() const;
  void set_memory_limit(uint64_t bytes);  // of blocks to come; 0: none
  // Called when an allocation would bring `live` above the budget; frees something and returns true,
  // or returns false. Empty: no budget.
  using Reclaim = std::function<bool(uint64_t bytes)>;
  struct LiveBudget {
    uint64_t bytes = 0;  // 0: none
    Reclaim reclaim;
  };
  LiveBudget exchange_live_budget(LiveBudget budget);  // returns the one before
  uint64_t live() const;
  uint64_t live_budget() const;  // 0: none
  uint64_t take_high_water();  // most bytes live at once since the last call

  WorkByPhase work() const;  // since the start or reset_peak()

  void start_trace();          // records all that happens in memory until stop_trace()
  MemoryTrace stop_trace();    // waits for the device where kernels are timed

  void synchronize();

 private:
  friend class Storage;
  explicit Device(std::unique_ptr<Backend> backend, uint64_t memory_limit);
  Arena::Range take(Storage& storage);
  Arena::Range take_anywhere(uint64_t bytes);
  bool grow(uint64_t bytes);
  std::optional<uint32_t> add_block(Arena& arena, uint64_t bytes);
  void release(Storage& storage);
  uint64_t room() const;  // bytes of blocks that the limit still allows
  void update_peaks();
  void trace(const Storage& storage, uint64_t time);
  [[noreturn]] void out_of_memory(uint64_t bytes) const;

  // Recursive: what is dropped to make room gives its memory back inside allocate().
  mutable std::recursive_mutex mutex_;
  using Lock = std::lock_guard<std::recursive_mutex>;
  const uint64_t number_;  // of devices opened so far
  std::unique_ptr<Backend> backend_;
  uint64_t reserved() const { return arena_.reserved() + lasting_.reserved(); }
  std::optional<Arena::Range> take_lasting(uint64_t bytes);

  Arena arena_;
  Arena lasting_;  // parameters and the like: kept apart, so that they do not lie scattered in what steps need
  MemoryReport report_;
  StepPlanner planner_;
  WorkByPhase work_{};
  std::unordered_set<const Storage*> storages_;
  uint64_t requested_live_ = 0, step_allocated_ = 0, step_start_ = 0;
  uint64_t step_peak_ = 0, last_step_peak_ = 0, high_water_ = 0;
  LiveBudget budget_;
  std::unique_ptr<Tracer> tracer_;
};

// The device that new tensors are made on, in all threads but those in a DeviceScope.
// default_device throws DeviceError before the first set.
std::shared_ptr<Device> set_default_device(std::unique_ptr<Backend> backend, uint64_t memory_limit = 0);
void set_default_device(std::shared_ptr<Device> device);
std::shared_ptr<Device> default_device();
// Makes `device` (or none) the default; returns what was before.
std::shared_ptr<Device> exchange_default_device(std::shared_ptr<Device> device);

// While it lives, this thread has a default device of its own; setting the default sets that one.
class DeviceScope {
 public:
  explicit DeviceScope(std::shared_ptr<Device> device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  std::optional<std::shared_ptr<Device>> previous_;
};

}  // namespace rw
