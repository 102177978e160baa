#include "backends/vulkan/commands/recorder.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/files/cache.h"

namespace rw::vulkan {

namespace {

constexpr size_t kSlots = 8;  // submits in flight
constexpr size_t kStepsPerSubmit = 64;
constexpr uint32_t kQueries = 2 * kStepsPerSubmit;
constexpr size_t kStepsWhenIdle = 16;  // gets an idle device going sooner
constexpr uint32_t kSetsPerPool = 128;
// The time that a submit should take: far below any watchdog (2 s), far above its own cost.
constexpr double kSubmitSeconds = 0.05;
// The seconds without the end of a submit after which the recorder stops waiting. Submits of a GPU
// end within the watchdog's 2 s; a CPU driver compiles in this time, on a machine that may be busy.
constexpr int kPatience = 120, kPatienceOfCpu = 1800;

constexpr VkPipelineStageFlags kStages =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

// How much faster the slowest devices of a kind are than the slow device of Pacing::guess().
double speed_of(const Caps& caps) {
  if (caps.type == "discrete GPU") return 20;
  return caps.type == "integrated GPU" ? 5 : 1;
}

// Waits for a value of the timeline. VK_TIMEOUT means that the timeline has not moved for
// `patience` seconds.
VkResult await(VkDevice device, VkSemaphore timeline, uint64_t value, int patience) {
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline;
  info.pValues = &value;
  uint64_t reached = 0, before = 0;
  for (int seconds = 0; seconds < patience; seconds = reached == before ? seconds + 1 : 0) {
    before = reached;
    const VkResult result = vkWaitSemaphores(device, &info, uint64_t{1000000000});
    if (result != VK_TIMEOUT) return result;
    const VkResult asked = vkGetSemaphoreCounterValue(device, timeline, &reached);
    if (asked != VK_SUCCESS) return asked;
  }
  return VK_TIMEOUT;
}

}  // namespace

Recorder::Recorder(const Device& device)
    : device_(device),
      pacing_file_(
          device.caps().type == "CPU"
              ? ""
              : fmt::format("pacing-{}-{:x}.txt", device.caps().uuid, device.caps().driver_number)),
      pacing_(speed_of(device.caps())),
      times_(device.caps().timestamp_ns, device.caps().timestamp_mask, env_flag("REWIND_PROFILE")) {
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
  vk_check(vkCreateSemaphore(device_.handle(), &info, nullptr, &timeline_), "vkCreateSemaphore");
  if (env_flag("REWIND_CHECK_HAZARDS")) model_.emplace();
  if (!pacing_file_.empty()) {
    const std::vector<std::byte> text = read_cache(pacing_file_);
    pacing_.remember({reinterpret_cast<const char*>(text.data()), text.size()});
  }
}

Recorder::~Recorder() {
  vkDeviceWaitIdle(device_.handle());
  if (recording_) slots_.back().value = ~uint64_t{0};  // never submitted
  for (Slot& slot : slots_) {
    if (slot.value <= submitted_ && lost_.empty()) try_read_timestamps(slot);
    for (VkDescriptorPool pool : slot.set_pools)
      vkDestroyDescriptorPool(device_.handle(), pool, nullptr);
    vkDestroyQueryPool(device_.handle(), slot.queries, nullptr);
    vkDestroyCommandPool(device_.handle(), slot.pool, nullptr);
  }
  vkDestroySemaphore(device_.handle(), timeline_, nullptr);
  if (!pacing_file_.empty() && lost_.empty()) {
    const std::string learned = pacing_.text();
    write_cache(pacing_file_, std::as_bytes(std::span(learned)));
  }
  std::fputs(times_.profile().c_str(), stderr);
}

void Recorder::require(VkResult result, const char* call) {
  if (result == VK_SUCCESS) return;
  hangs_ = result == VK_TIMEOUT;
  std::string last;
  for (const Slot& slot : slots_)
    for (const TimedStep& step : slot.steps)
      last = fmt::format("{} {}", step.label, last.substr(0, 400));
  lost_ = fmt::format(
      "{} failed: {}; the device is lost, open it anew. Last kernels, newest "
      "first: {}",
      call, hangs_ ? fmt::format("no kernel ended within {} s", patience()) : result_name(result),
      last);
  fail<DeviceError>("vulkan", "{}", lost_);
}

Recorder::Slot Recorder::create_slot() {
  Slot slot;
  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.queueFamilyIndex = device_.queue_family();
  vk_check(vkCreateCommandPool(device_.handle(), &pool, nullptr, &slot.pool),
           "vkCreateCommandPool");
  VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  info.commandPool = slot.pool;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  vk_check(vkAllocateCommandBuffers(device_.handle(), &info, &slot.commands),
           "vkAllocateCommandBuffers");
  if (device_.caps().timestamp_ns > 0) {
    VkQueryPoolCreateInfo queries{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    queries.queryType = VK_QUERY_TYPE_TIMESTAMP;
    queries.queryCount = kQueries;
    vk_check(vkCreateQueryPool(device_.handle(), &queries, nullptr, &slot.queries),
             "vkCreateQueryPool");
  }
  return slot;
}

void Recorder::recycle(Slot& slot) {
  read_timestamps(slot);
  vk_check(vkResetCommandPool(device_.handle(), slot.pool, 0), "vkResetCommandPool");
  for (VkDescriptorPool pool : slot.set_pools)
    vk_check(vkResetDescriptorPool(device_.handle(), pool, 0), "vkResetDescriptorPool");
  slot.set_pool = 0;
  slot.seconds = 0;
}

void Recorder::start() {
  if (slots_.size() < kSlots && (slots_.empty() || completed() < slots_.front().value)) {
    slots_.push_back(create_slot());
  } else {
    wait(slots_.front().value);
    recycle(slots_.front());
    slots_.push_back(std::move(slots_.front()));
    slots_.pop_front();
  }
  VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  Slot& slot = slots_.back();
  vk_check(vkBeginCommandBuffer(slot.commands, &info), "vkBeginCommandBuffer");
  recording_ = true;
  slot.timed = times_.wanted();
  if (slot.queries) vkCmdResetQueryPool(slot.commands, slot.queries, 0, kQueries);
}

void Recorder::barrier(VkPipelineStageFlags to_stage, VkAccessFlags to_access) {
  VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER};
  barrier.srcAccessMask = kWrites;
  barrier.dstAccessMask = to_access;
  vkCmdPipelineBarrier(slots_.back().commands, kStages, to_stage, 0, 1, &barrier, 0, nullptr, 0,
                       nullptr);
}

void Recorder::check_model(std::span<const Use> uses, bool barrier) {
  if (!model_) return;
  if (barrier) model_->clear();
  check<DeviceError>(!model_->conflicts(uses), "vulkan",
                     "REWIND_CHECK_HAZARDS: a step must not run beside one it depends on: {}",
                     slots_.back().steps.back().label);
  model_->add(uses);
}

VkCommandBuffer Recorder::begin(std::span<const Use> uses, TimedStep step) {
  check<DeviceError>(lost_.empty(), "vulkan", "{}", lost_);
  if (!recording_) start();
  Slot& slot = slots_.back();
  slot.steps.push_back(step);
  const bool wait = hazards_.conflicts(uses);
  if (wait) {
    barrier(kStages, kReads | kWrites);
    hazards_.clear();
    ++barriers;
  }
  hazards_.add(uses);
  check_model(uses, wait);
  const auto before = static_cast<uint32_t>(slot.steps.size() - 1);
  if (slot.queries && (slot.timed || before == 0)) timestamp(2 * before);
  return slot.commands;
}

void Recorder::end(double flops, double bytes) {
  Slot& slot = slots_.back();
  TimedStep& step = slot.steps.back();
  step.guess = Pacing::guess(flops, bytes);
  slot.seconds += pacing_.expect(step.label, step.guess);
  const size_t steps = slot.steps.size();
  if (slot.timed) timestamp(static_cast<uint32_t>(2 * steps - 1));
  if (steps >= kStepsPerSubmit || slot.seconds >= kSubmitSeconds ||
      (steps == kStepsWhenIdle && !device_.caps().is_cpu && completed() == submitted_))
    flush();
}

VkDescriptorSet Recorder::allocate_set(VkDescriptorSetLayout layout) {
  Slot& slot = slots_.back();
  for (;; ++slot.set_pool) {
    if (slot.set_pool == slot.set_pools.size()) {
      const VkDescriptorPoolSize sizes[] = {
          {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 8 * kSetsPerPool},
          {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, 8 * kSetsPerPool}};
      VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
      info.maxSets = kSetsPerPool;
      info.poolSizeCount = static_cast<uint32_t>(std::size(sizes));
      info.pPoolSizes = sizes;
      slot.set_pools.emplace_back();
      vk_check(vkCreateDescriptorPool(device_.handle(), &info, nullptr, &slot.set_pools.back()),
               "vkCreateDescriptorPool");
    }
    VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
    info.descriptorPool = slot.set_pools[slot.set_pool];
    info.descriptorSetCount = 1;
    info.pSetLayouts = &layout;
    VkDescriptorSet set;
    VkResult result = vkAllocateDescriptorSets(device_.handle(), &info, &set);
    if (result == VK_SUCCESS) return set;
    if (result != VK_ERROR_OUT_OF_POOL_MEMORY && result != VK_ERROR_FRAGMENTED_POOL)
      vk_check(result, "vkAllocateDescriptorSets");
  }
}

uint64_t Recorder::completed() {
  uint64_t value = 0;
  require(vkGetSemaphoreCounterValue(device_.handle(), timeline_, &value),
          "vkGetSemaphoreCounterValue");
  return value;
}

void Recorder::flush() {
  if (!recording_) return;
  Slot& slot = slots_.back();
  // The host may read mapped blocks once the submit is done.
  barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  if (slot.queries && !slot.timed) timestamp(1);
  recording_ = false;
  vk_check(vkEndCommandBuffer(slot.commands), "vkEndCommandBuffer");

  slot.value = submitted_ + 1;
  VkTimelineSemaphoreSubmitInfo timeline{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &slot.value;
  VkSubmitInfo submit{VK_STRUCTURE_TYPE_SUBMIT_INFO, &timeline};
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &slot.commands;
  submit.signalSemaphoreCount = 1;
  submit.pSignalSemaphores = &timeline_;
  require(vkQueueSubmit(device_.queue(), 1, &submit, nullptr), "vkQueueSubmit");
  submitted_ = slot.value;
  ++submits;
}

void Recorder::wait(uint64_t value) {
  check<DeviceError>(lost_.empty(), "vulkan", "{}", lost_);
  if (value > submitted_) flush();
  value = std::min(value, submitted_);
  require(await(device_.handle(), timeline_, value, patience()), "vkWaitSemaphores");
}

std::function<void()> Recorder::waiter() const {
  return
      [device = device_.handle(), timeline = timeline_, value = submitted_, patience = patience()] {
        vk_check(await(device, timeline, value, patience), "vkWaitSemaphores");
      };
}

int Recorder::patience() const {
  return device_.caps().is_cpu ? kPatienceOfCpu : kPatience;
}

void Recorder::wait_or_lose(uint64_t value) noexcept {
  try {
    if (lost_.empty()) wait(value);
  } catch (const Error&) {
  }
}

void Recorder::timestamp(uint32_t query) {
  vkCmdWriteTimestamp(slots_.back().commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                      slots_.back().queries, query);
}

void Recorder::read_timestamps(Slot& slot) {
  if (!slot.queries || slot.steps.empty()) return void(slot.steps.clear());
  std::vector<uint64_t> ticks(slot.timed ? 2 * slot.steps.size() : 2);
  const VkResult result = vkGetQueryPoolResults(
      device_.handle(), slot.queries, 0, static_cast<uint32_t>(ticks.size()),
      ticks.size() * sizeof(uint64_t), ticks.data(), sizeof(uint64_t), VK_QUERY_RESULT_64_BIT);
  if (result != VK_NOT_READY) require(result, "vkGetQueryPoolResults");
  const std::vector<TimedStep> steps = std::exchange(slot.steps, {});
  if (result != VK_SUCCESS) return;
  if (slot.timed) times_.add(steps, ticks);
  pacing_.learn(steps, times_.seconds(ticks.front(), ticks.back()));
}

void Recorder::try_read_timestamps(Slot& slot) noexcept {
  try {
    read_timestamps(slot);
  } catch (const Error&) {
  }
}

void Recorder::finish_all() {
  wait_all();
  for (Slot& slot : slots_) read_timestamps(slot);
}

void Recorder::time_kernels(bool on) {
  finish_all();
  times_.time_kernels(on);
}

std::vector<KernelTime> Recorder::kernel_times() {
  finish_all();
  return times_.take();
}

}  // namespace rw::vulkan
