#include "core/device.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/error.h"

namespace rw {

namespace {

thread_local Purpose current_purpose = Purpose::activation;
thread_local const char* current_op = "user";
// Never destroyed by the program's exit: by then drivers and layers have torn down their own statics.
std::shared_ptr<Device>& the_default_device = *new std::shared_ptr<Device>;
const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<uint64_t> next_storage_id = 1;

constexpr uint64_t smallest_block = uint64_t{16} << 20;

}  // namespace

Storage::Storage(std::shared_ptr<Device> device, uint64_t bytes, bool half, Purpose purpose)
    : device_(std::move(device)),
      range_(device_->take(bytes)),
      bytes_(bytes),
      half_(half),
      purpose_(purpose),
      op_(current_op),
      id_(next_storage_id++) {}

Storage::~Storage() { device_->release(*this); }

void Storage::set_purpose(Purpose purpose) {
  auto& live = device_->report_.live_by_purpose;
  live[static_cast<int>(purpose_)] -= bytes_;
  live[static_cast<int>(purpose)] += bytes_;
  purpose_ = purpose;
}

Device::Device(std::unique_ptr<Backend> backend, uint64_t memory_limit)
    : backend_(std::move(backend)), arena_(backend_->info().alignment) {
  report_.limit = memory_limit;
}

std::shared_ptr<Device> Device::create(std::unique_ptr<Backend> backend, uint64_t memory_limit) {
  return std::shared_ptr<Device>(new Device(std::move(backend), memory_limit));
}

Device::~Device() { trim(); }

std::shared_ptr<Storage> Device::allocate(uint64_t bytes, bool half, Purpose purpose) {
  auto storage = std::make_shared<Storage>(shared_from_this(), bytes, half, purpose);
  const uint64_t size = storage->range().size;
  storages_.insert(storage.get());
  report_.live_by_purpose[static_cast<int>(purpose)] += bytes;
  requested_live_ += bytes;
  if (half) half_live_ += bytes;
  step_allocated_ += size;
  update_peaks();
  return storage;
}

void Device::release(Storage& storage) {
  if (storages_.erase(&storage)) {
    report_.live_by_purpose[static_cast<int>(storage.purpose_)] -= storage.bytes_;
    requested_live_ -= storage.bytes_;
    if (storage.half_) half_live_ -= storage.bytes_;
  }
  arena_.free(storage.range_);
  count_spared(storage);
}

// The contents go; a segment in whose account they are spares them.
void Device::count_spared(Storage& storage) {
  if (storage.spared && storage.spared->open) {
    storage.spared->bytes += storage.range_.size;
    dropped_ += storage.range_.size;
  }
  storage.spared.reset();
}

Arena::Range Device::take(uint64_t bytes) {
  if (auto range = arena_.allocate(bytes)) return *range;
  if (grow(bytes)) return arena_.allocate(bytes).value();
  trim();  // free blocks may be too small for this request and yet fill the limit
  if (grow(bytes)) return arena_.allocate(bytes).value();
  out_of_memory(bytes);
}

bool Device::grow(uint64_t bytes) {
  const DeviceInfo& device = backend_->info();
  const uint64_t need = std::max(arena_.round_up(bytes), device.alignment);
  const uint64_t room = report_.limit ? report_.limit - std::min(report_.limit, arena_.reserved())
                                      : device.max_block_bytes;
  if (need > std::min(room, device.max_block_bytes)) return false;
  // Blocks grow with use, so that small programs stay small and large ones hold few blocks.
  const uint64_t wish =
      std::max(need, std::min(std::max(arena_.reserved() / 2, smallest_block), device.max_block_bytes / 4));
  for (uint64_t size : {std::min(wish, room) / device.alignment * device.alignment, need}) {
    if (size < need) continue;
    try {
      arena_.add_block(backend_->allocate_block(size), size);
      return true;
    } catch (const OutOfMemory&) {  // try the smallest block that serves, then report
    }
  }
  return false;
}

void Device::trim() {
  for (uint32_t block : arena_.remove_free_blocks()) backend_->free_block(block);
}

void Device::out_of_memory(uint64_t bytes) const {
  std::vector<const Storage*> top(storages_.begin(), storages_.end());
  const size_t shown = std::min<size_t>(5, top.size());
  std::partial_sort(top.begin(), top.begin() + shown, top.end(),
                    [](auto* a, auto* b) { return a->bytes() > b->bytes(); });
  std::string largest;
  for (size_t i = 0; i < shown; ++i)
    largest += fmt::format("\n  {:>12}  {} from {}", format_bytes(top[i]->bytes()),
                           name(top[i]->purpose()), top[i]->op());
  const DeviceInfo& device = backend_->info();
  std::string reason = fmt::format("the device '{}' gave no more memory", device.name);
  if (bytes > device.max_block_bytes)
    reason = fmt::format("the largest block of '{}' is {}", device.name, format_bytes(device.max_block_bytes));
  else if (report_.limit)
    reason = fmt::format("the memory limit is {}", format_bytes(report_.limit));
  throw OutOfMemory(fmt::format(
      "[{}] needs {} more: {}; live {}, reserved {}, largest hole {}. Largest tensors:{}\n"
      "Try a smaller batch with accumulation, checkpoint segments, or f16.",
      current_op, format_bytes(bytes), reason, format_bytes(arena_.live()),
      format_bytes(arena_.reserved()), format_bytes(arena_.largest_hole()), largest));
}

void Device::update_peaks(uint64_t momentary) {
  const uint64_t live = arena_.live();
  MemoryReport& r = report_;
  if (live > r.peak) {
    r.peak = live;
    r.peak_by_purpose = r.live_by_purpose;
    r.padding_at_peak = live - requested_live_;
    r.fragmentation_at_peak = arena_.reserved() - live - arena_.largest_hole();
  }
  r.peak_reserved = std::max(r.peak_reserved, arena_.reserved());
  r.peak_without_inplace = std::max(r.peak_without_inplace, live + momentary);
  r.peak_without_f16 = std::max(r.peak_without_f16, live + half_live_);
  r.peak_without_checkpoint = std::max(r.peak_without_checkpoint, live + dropped_);
  const auto bytes = [&](Purpose p) { return r.live_by_purpose[static_cast<int>(p)]; };
  const uint64_t per_batch = bytes(Purpose::activation) + bytes(Purpose::workspace) + bytes(Purpose::data);
  r.peak_without_accumulation =
      std::max(r.peak_without_accumulation, live + (micro_batches_ - 1) * per_batch);
}

void Device::note_inplace(Storage& storage) {
  count_spared(storage);
  step_allocated_ += storage.range_.size;
  update_peaks(storage.range_.size);
}

void Device::close(SpareAccount& account) {
  dropped_ -= account.bytes;
  account = {0, false};
}

void Device::note_accumulation(uint32_t micro_batches) { micro_batches_ = micro_batches; }

MemoryReport Device::memory_report() const {
  MemoryReport r = report_;
  r.live = arena_.live();
  r.reserved = arena_.reserved();
  r.naive = std::max(r.naive, step_start_ + step_allocated_);
  return r;
}

void Device::reset_peak() {
  MemoryReport fresh;
  fresh.limit = report_.limit;
  fresh.live_by_purpose = report_.live_by_purpose;
  report_ = fresh;
  update_peaks();
  end_step();
  report_.naive = 0;
}

void Device::end_step() {
  report_.naive = step_start_ + step_allocated_;
  step_start_ = arena_.live();
  step_allocated_ = 0;
}

std::shared_ptr<Device> set_default_device(std::unique_ptr<Backend> backend, uint64_t memory_limit) {
  set_default_device(Device::create(std::move(backend), memory_limit));
  return the_default_device;
}

namespace {

// Thread-local objects die before the exit handlers, where drivers and layers tear down what the
// device still needs (a CPU driver may even be compiling kernels): queued work is finished here, and
// the main thread closes the default device.
struct CloseAtExit {
  ~CloseAtExit() {
    try {
      if (the_default_device) the_default_device->synchronize();
    } catch (const Error&) {  // a lost device has nothing left to finish
    }
    if (std::this_thread::get_id() == main_thread) the_default_device.reset();
  }
};

}  // namespace

void set_default_device(std::shared_ptr<Device> device) {
  [[maybe_unused]] thread_local const CloseAtExit close;
  the_default_device = std::move(device);
}

const std::shared_ptr<Device>& default_device() {
  check<DeviceError>(the_default_device != nullptr, "device",
                     "a default device must be set first: set_default_device(open_backend(\"vulkan\"))");
  return the_default_device;
}

PurposeScope::PurposeScope(Purpose purpose) : previous_(current_purpose) { current_purpose = purpose; }
PurposeScope::~PurposeScope() { current_purpose = previous_; }
Purpose PurposeScope::current() { return current_purpose; }

OpScope::OpScope(const char* op) : previous_(current_op) { current_op = op; }
OpScope::~OpScope() { current_op = previous_; }
const char* OpScope::current() { return current_op; }

}  // namespace rw
