// Records steps into command buffers, puts barriers between those that depend on each other, and
// submits them in batches. One in-order queue, one timeline semaphore.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../../core/backend/backend.h"
#include "../device/device.h"
#include "hazards.h"
#include "pacing.h"
#include "timing.h"

namespace rw::vulkan {

class Recorder {
 public:
  explicit Recorder(const Device& device);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Starts a step: the command buffer to record it in, with a barrier before it if `uses` overlap
  // with earlier steps. `label` outlives the recorder; kernels belong to the call of set_call().
  VkCommandBuffer begin_kernel(std::span<const Use> uses, const char* label) {
    return begin(uses, {label, call_});
  }
  VkCommandBuffer begin_copy(std::span<const Use> uses, const char* label) {
    return begin(uses, {label, TimedStep::kCopy});
  }
  // Ends the step. Submits are bounded by the expected time of their steps' operations and bytes.
  void end(double flops, double bytes);

  // Returns the seconds that a kernel is expected to take; it is measured once it has run.
  double expect(const char* label, double flops, double bytes) const {
    return pacing_.expect(label, Pacing::guess(flops, bytes));
  }
  bool is_measured(const char* label) const { return pacing_.is_measured(label); }

  // Returns a descriptor set that lives as long as the current command buffer.
  VkDescriptorSet allocate_set(VkDescriptorSetLayout layout);

  // The timeline value of the submit that is being recorded.
  uint64_t current() const { return submitted_ + 1; }
  uint64_t completed();
  void flush();
  // Flushes first if necessary. DeviceError if kernels do not end.
  void wait(uint64_t value);
  void wait_all() { wait(current()); }
  // Waits, on any thread, for the last submit before this call: it touches only the timeline.
  std::function<void()> waiter() const;
  void finish_all();  // waits, then reads all timestamps
  // For destructors: after a loss nothing runs any more, and everything that waits for the device
  // has been told so.
  void wait_or_lose(uint64_t value) noexcept;
  bool hangs() const { return hangs_; }  // its last submit may never end

  // These do the same as in Backend. Both wait for all work.
  void time_kernels(bool on);
  std::vector<KernelTime> kernel_times();
  // Returns the number of a new call; steps belong to the call that set_call() was last given.
  uint64_t next_call() { return times_.next_call(); }
  void set_call(uint64_t number) { call_ = number; }

  uint64_t dispatches = 0, submits = 0, barriers = 0;

 private:
  // A command buffer, and what is recycled with it.
  struct Slot {
    VkCommandPool pool = nullptr;
    VkCommandBuffer commands = nullptr;
    std::vector<VkDescriptorPool> set_pools;
    size_t set_pool = 0;  // in use
    VkQueryPool queries = nullptr;
    std::vector<TimedStep> steps;
    bool timed = false;  // two timestamps for each step; else for all of them
    double seconds = 0;  // the expected time
    uint64_t value = 0;  // of its submit
  };

  VkCommandBuffer begin(std::span<const Use> uses, TimedStep step);
  Slot create_slot();
  void start();         // takes a free slot and begins its command buffer
  void recycle(Slot&);  // after its submit has completed
  void check_model(std::span<const Use> uses, bool barrier);
  void barrier(VkPipelineStageFlags to_stage, VkAccessFlags to_access);
  void timestamp(uint32_t query);
  void read_timestamps(Slot&);                      // of a submit that has completed
  void try_read_timestamps(Slot&) noexcept;         // as far as the device still answers
  void require(VkResult result, const char* call);  // a failure is final and explained
  int patience() const;                             // seconds

  const Device& device_;
  VkSemaphore timeline_ = nullptr;
  std::deque<Slot> slots_;  // oldest submit first; while recording, the back is the open one
  bool recording_ = false;
  uint64_t submitted_ = 0;  // timeline value of the last submit

  HazardTracker hazards_;
  std::optional<HazardModel> model_;  // REWIND_CHECK_HAZARDS=1
  const std::string
      pacing_file_;  // in the cache; empty for a CPU driver, whose machine has other work, too
  Pacing pacing_;
  StepTimes times_;
  uint64_t call_ = 0;
  std::string lost_;  // why the device was lost
  bool hangs_ = false;
};

}  // namespace rw::vulkan
