// A device: one backend with the queue of its work, the pool of its memory and the account of both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "../arena/pool.h"
#include "../backend/backend.h"
#include "../base/owned_mutex.h"
#include "account.h"
#include "memory_report.h"
#include "memory_trace.h"
#include "storage.h"
#include "work.h"

namespace rw {

class Tracer;

// Any thread may use it: every call holds the device's one lock, and work runs in the order in
// which it was queued. Kernels, host copies, allocations and memory accounting all go through it.
class Device : public StorageOwner, public std::enable_shared_from_this<Device> {
 public:
  // `memory_limit` is the most bytes of blocks to hold; 0 means what REWIND_MEMORY_BUDGET says, or
  // else only the device's limit.
  static std::shared_ptr<Device> create(std::unique_ptr<Backend> backend,
                                        uint64_t memory_limit = 0);
  ~Device() override;

  // For questions only; work on memory goes through the device, which counts writes.
  const Backend& backend() const { return *backend_; }
  const DeviceInfo& info() const { return backend_->info(); }

  std::string str() const;  // "cpu 'AMD EPYC' (device 1)": no two are alike

  // Returns memory for a dense tensor with undefined contents, under the thread's purpose and op,
  // in the place that its PlaceScope chooses. OutOfMemory, with the op, the bytes wanted and free,
  // the limit and the largest tensors.
  std::shared_ptr<Storage> allocate(const Shape& shape, DType dtype);

  // Returns a storage on memory of the host that others own and keep using, which starts at a
  // multiple of 16 bytes and is in no report and no limit. Null if the device does not work on such
  // memory.
  std::shared_ptr<Storage> adopt(const std::shared_ptr<std::byte>& memory, const Shape& shape,
                                 DType dtype);
  // Returns where the host reads and writes the bytes of a storage while the device uses them, too:
  // until unpin() it stays there. Null if the device works by itself, or they are elsewhere.
  std::byte* pin(Storage& storage);
  void unpin(Storage& storage) noexcept;

  void release(Storage& storage) noexcept override;  // called by the storage as it dies
  // Gives back the memory of a storage that a keeper can fill again, unless it stays
  // (Storage::stays), and takes memory for it again, with undefined contents until restore(). To
  // saved values, none of this is a write.
  void swap_out(Storage& storage);
  void swap_in(Storage& storage);
  void restore(Storage& target, const void* source);  // all its bytes, from the host
  // Sends a storage away and keeps its contents in host memory (MemoryPlace::host). Kernels bring
  // it back when they need it, and so does swap_in(); copies and reads find it where it is.
  // Returns whether it is there: the host may have no memory left, or it stays (Storage::stays).
  bool to_host(Storage& storage);
  // The same for all activations of at least `least_bytes` that are younger than `age`
  // (Storage::newest()).
  void activations_to_host(uint64_t age, uint64_t least_bytes);

  void set_purpose(Storage& storage, Purpose purpose);  // for an activation that becomes a gradient
  // The only way to write: the caller names the storages that are written, and they count. Within a
  // HostWorkScope the host runs the call; DeviceError if it binds other memory than the host's.
  void run(const KernelCall& call, std::span<Storage* const> written);
  // Prepares a call for whoever runs it.
  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const;
  // The place of a storage's contents: in host memory if they are there. DeviceError if they are
  // elsewhere.
  static const Arena::Range& where(const Storage& storage);
  void write(Storage& target, uint64_t offset, uint64_t bytes,
             const void* source);  // from the host

  void read(const Storage& source, uint64_t offset, uint64_t bytes, void* target);  // waits
  // Queues a copy of `bytes` from one storage into another. It runs beside kernels that use other
  // bytes.
  void copy(const Storage& source, uint64_t source_offset, Storage& target, uint64_t target_offset,
            uint64_t bytes);

  // Give a point of the queue and the bytes of host memory to a thread that waits for that point
  // and reads them while others use the device: Backend::mark() and Backend::host_bytes().
  std::function<void()> mark();
  const std::byte* host_bytes(const Storage& storage);

  MemoryReport memory_report() const;  // where memory went, and the peaks since reset_peak()
  void reset_peak();                   // peaks and work start again, from what is live
  // Ends a training step: its allocations are learnt, so that the next similar step is packed
  // tightly. Optimizers do so by themselves; loops without an optimizer call it between steps, when
  // only tensors that outlive them are alive.
  void end_step();
  // Ends the step with the next allocation, if end_step() was not called before: tensors that a
  // loop still drops (gradients, its loss) die within their step. Called by optimizers.
  void end_step_soon();

  void trim();  // gives wholly free blocks back to the driver

  // The steps that another device learnt in a dry run; they are placed from the first one on.
  std::vector<StepTrace> step_traces() const;
  void learn(std::vector<StepTrace> traces);

  void set_packs_steps(bool on);  // false: steps are allocated dynamically

  // The most bytes of blocks; 0 for no limit. Blocks above it are given back as far as live values
  // allow; values move for that, and to make room later on.
  uint64_t memory_limit() const;
  void set_memory_limit(uint64_t bytes);
  // A temporary limit, whose owner can free memory: if an allocation would not fit, this is called,
  // and frees something and returns true, or returns false.
  using Reclaim = MemoryPool::Reclaim;
  struct Budget {
    uint64_t bytes = 0;                        // of blocks; 0: none
    Reclaim reclaim;                           // asked to free `bytes` of live memory
    std::function<std::string()> advice = {};  // for OutOfMemory's text, if it frees nothing
  };

  Budget exchange_budget(Budget budget);  // returns the previous one
  uint64_t budget() const;                // in bytes; 0: none
  uint64_t live() const;                  // bytes of ranges, padding included
  uint64_t take_high_water();             // most bytes live at once since the last call

  // While it lives, no other thread uses the device, and nothing that the caller allocates moves
  // between asking where a value lies and telling a kernel.
  using Hold = std::unique_lock<OwnedMutex>;
  [[nodiscard]] Hold hold() const { return Hold(mutex_); }
  uint64_t moves() const;  // values that moved to make room, in all

  WorkByPhase work() const;  // since the start or reset_peak()

  void start_trace();        // records all events in memory until stop_trace()
  MemoryTrace stop_trace();  // waits for the device if kernels are timed

  void synchronize();  // waits for all work

 private:
  explicit Device(std::unique_ptr<Backend> backend, uint64_t memory_limit);
  MemoryPool::Allocation take(uint64_t bytes);
  std::vector<MemoryPool::Allocation*> places() const;  // of everything in the device's memory
  static bool is_here(const Storage& storage);
  void place(Storage& storage);
  void displace(Storage& storage) noexcept;
  void run_on_host(const KernelCall& call);
  void copy_all(const Storage& storage, const Arena::Range& from, const Arena::Range& to);
  void link(Storage& storage);
  void unlink(Storage& storage) noexcept;
  std::vector<const Storage*> storages() const;  // newest first
  [[noreturn]] void out_of_memory(uint64_t bytes) const;
  std::string request_text(uint64_t bytes) const;
  std::string refusal_text(uint64_t bytes) const;
  [[noreturn]] void out_of_host_memory(uint64_t bytes) const;

  // Values that are dropped to make room free their memory inside allocate(), and launch() runs a
  // kernel while it holds the device: the thread that has the lock takes it again.
  mutable OwnedMutex mutex_;
  using Lock = std::lock_guard<OwnedMutex>;
  const uint64_t number_;  // of devices opened so far
  std::unique_ptr<Backend> backend_;
  MemoryPool pool_;
  MemoryAccount account_;
  WorkByPhase work_{};
  Storage* newest_ = nullptr;  // of those alive, as the head of a list
  bool step_ends_soon_ = false;
  Reclaim reclaim_;                      // of the budget
  std::function<std::string()> advice_;  // of the budget
  std::unique_ptr<Tracer> tracer_;
};

}  // namespace rw
