#include "core/device.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/error.h"
#include "core/process_memory.h"
#include "core/tracer.h"

namespace rw {

namespace {

std::atomic<uint64_t> next_storage_id = 1, next_device_number = 1;

constexpr uint64_t smallest_block = uint64_t{16} << 20;
constexpr uint64_t smallest_shared = uint64_t{64} << 10, largest_shared = uint64_t{4} << 20;

}  // namespace

Storage::Storage(std::shared_ptr<Device> device, const Shape& shape, DType dtype)
    : device_(std::move(device)),
      made_(context()),
      shape_(shape),
      dtype_(dtype),
      bytes_(static_cast<uint64_t>(shape.numel()) * size_of(dtype)),
      id_(next_storage_id++),
      range_(device_->take(*this)) {}

Storage::~Storage() { device_->release(*this); }

void Storage::set_purpose(Purpose purpose) {
  const Device::Lock lock(device_->mutex_);
  auto& live = device_->report_.live_by_purpose;
  live[static_cast<int>(made_.purpose)] -= bytes_;
  live[static_cast<int>(purpose)] += bytes_;
  made_.purpose = purpose;
  if (device_->tracer_) device_->tracer_->changed(*this);
}

Device::Device(std::unique_ptr<Backend> backend, uint64_t memory_limit)
    : number_(next_device_number++),
      backend_(std::move(backend)),
      arena_(info().alignment),
      lasting_(info().alignment),
      planner_({.arena = arena_,
                .largest_block = info().max_block_bytes,
                .grow = [this](uint64_t bytes) { return add_block(arena_, bytes); },
                .trim = [this] { trim(); }}) {
  report_.limit = memory_limit;
}

namespace {

const Work& of(Phase phase, const WorkByPhase& work) { return work[static_cast<size_t>(phase)]; }

}  // namespace

double total_flops(const WorkByPhase& work) {
  double sum = 0;
  for (const Work& w : work) sum += w.flops;
  return sum;
}

double recompute_share(const WorkByPhase& work) {
  const double replay = of(Phase::replay, work).flops, rest = total_flops(work) - replay;
  return rest > 0 ? replay / rest : 0;
}

double modelled_recompute_share(const WorkByPhase& work) {
  const auto cost = [&](Phase phase) {
    const Work& w = of(phase, work);
    return OpCost{w.flops, w.bytes}.total();
  };
  const double rest = cost(Phase::forward) + cost(Phase::backward);
  return rest > 0 ? cost(Phase::replay) / rest : 0;
}

OpCost replay_cost(const WorkByPhase& work) {
  const Work& replay = of(Phase::replay, work);
  return {replay.flops, replay.bytes};
}

std::shared_ptr<Device> Device::create(std::unique_ptr<Backend> backend, uint64_t memory_limit) {
  return std::shared_ptr<Device>(new Device(std::move(backend), memory_limit));
}

Device::~Device() { trim(); }

std::shared_ptr<Storage> Device::allocate(const Shape& shape, DType dtype) {
  const Lock lock(mutex_);
  auto storage = std::make_shared<Storage>(shared_from_this(), shape, dtype);
  storages_.insert(storage.get());
  report_.live_by_purpose[static_cast<int>(storage->purpose())] += storage->bytes();
  requested_live_ += storage->bytes();
  step_allocated_ += storage->range().size;
  update_peaks();
  if (tracer_) tracer_->allocated(*storage);
  return storage;
}

void Device::release(Storage& storage) {
  const Lock lock(mutex_);
  if (storages_.erase(&storage)) {
    report_.live_by_purpose[static_cast<int>(storage.purpose())] -= storage.bytes_;
    requested_live_ -= storage.bytes_;
    if (tracer_) tracer_->freed(storage);
  }
  (storage.lasting_ ? lasting_ : arena_).free(storage.range_);
  planner_.freed(storage.ticket_);
}

std::string Device::str() const {
  return fmt::format("{}{} '{}' (device {})", backend_->is_dry() ? "dry " : "", info().backend,
                     info().name, number_);
}

void Device::run(const KernelCall& call, std::span<Storage* const> written) {
  const Lock lock(mutex_);
  for (Storage* storage : written) ++storage->version_;
  Work& work = work_[static_cast<int>(context().phase)];
  work.flops += call.flops;
  work.bytes += bytes_moved(call);
  context().queued.flops += call.flops;
  context().queued.bytes += bytes_moved(call);
  ++work.calls;
  if (tracer_) tracer_->called(call);
  backend_->run(call);
}

void Device::write(Storage& target, uint64_t offset, uint64_t bytes, const void* source) {
  const Lock lock(mutex_);
  ++target.version_;
  backend_->write({target.range_.block, target.range_.offset + offset, bytes}, source);
}

void Device::read(const Storage& source, uint64_t offset, uint64_t bytes, void* target) {
  const Lock lock(mutex_);
  backend_->read({source.range_.block, source.range_.offset + offset, bytes}, target);
}

void Device::synchronize() {
  const Lock lock(mutex_);
  backend_->synchronize();
}

Arena::Range Device::take(Storage& storage) {
  const uint64_t bytes = storage.bytes_, size = std::max(arena_.round_up(bytes), info().alignment);
  while (budget_.bytes && live() + size > budget_.bytes)
    if (!budget_.reclaim(live() + size - budget_.bytes)) out_of_memory(bytes);
  const Purpose purpose = storage.purpose();
  const bool is_of_model = purpose == Purpose::parameter || purpose == Purpose::optimizer;
  const auto [place, outlives] =
      is_of_model ? StepPlanner::Proposal{.outlives = true} : planner_.propose(bytes, size, storage.ticket_);
  if (outlives)
    if (const auto range = take_lasting(bytes)) {
      storage.lasting_ = true;
      return *range;
    }
  if (place) {
    if (const auto range = arena_.allocate_at(place->block, place->offset, size)) return *range;
    planner_.missed();
  }
  return take_anywhere(bytes);
}

std::optional<Arena::Range> Device::take_lasting(uint64_t bytes) {
  if (const auto range = lasting_.allocate(bytes)) return range;
  // What an optimizer moved into its slabs leaves whole blocks behind.
  for (const uint32_t block : lasting_.remove_free_blocks()) backend_->free_block(block);
  const uint64_t size = std::max(arena_.round_up(bytes), info().alignment);
  // Small things share blocks that grow with their number.
  const uint64_t shared = std::clamp(lasting_.reserved() / 16, smallest_shared, largest_shared);
  if (!(size < shared && add_block(lasting_, shared)) && !add_block(lasting_, size)) return std::nullopt;
  return lasting_.allocate(bytes);
}

Arena::Range Device::take_anywhere(uint64_t bytes) {
  if (auto range = arena_.allocate(bytes)) return *range;
  if (grow(bytes)) return arena_.allocate(bytes).value();
  trim();  // free blocks may be too small for this request and yet fill the limit
  if (grow(bytes)) return arena_.allocate(bytes).value();
  out_of_memory(bytes);
}

uint64_t Device::room() const {
  return report_.limit ? report_.limit - std::min(report_.limit, reserved()) : UINT64_MAX;
}

std::optional<uint32_t> Device::add_block(Arena& arena, uint64_t bytes) {
  if (bytes > room() || bytes > info().max_block_bytes) return std::nullopt;
  try {
    const uint32_t block = backend_->allocate_block(bytes);
    arena.add_block(block, bytes);
    return block;
  } catch (const OutOfMemory&) {  // the caller tries less, or reports
    return std::nullopt;
  }
}

bool Device::grow(uint64_t bytes) {
  const uint64_t unit = info().alignment, largest = info().max_block_bytes;
  const uint64_t need = std::max(arena_.round_up(bytes), unit);
  // Blocks grow with use, so that small programs stay small and large ones hold few blocks; a step
  // is taken to need what the last one needed.
  const uint64_t expected = last_step_peak_ - std::min(last_step_peak_, live());
  const uint64_t wish = std::max({need, expected, std::min(std::max(arena_.reserved() / 2, smallest_block), largest / 4)});
  const uint64_t size = std::min({wish, room(), largest}) / unit * unit;
  return (size >= need && add_block(arena_, size)) || add_block(arena_, need);
}

void Device::trim() {
  const Lock lock(mutex_);
  for (Arena* arena : {&arena_, &lasting_})
    for (const uint32_t block : arena->remove_free_blocks()) backend_->free_block(block);
}

void Device::out_of_memory(uint64_t bytes) const {
  std::vector<const Storage*> top(storages_.begin(), storages_.end());
  const size_t shown = std::min<size_t>(5, top.size());
  std::partial_sort(top.begin(), top.begin() + shown, top.end(), [](auto* a, auto* b) {
    return std::pair(b->bytes(), a->id()) < std::pair(a->bytes(), b->id());
  });
  std::string largest;
  for (size_t i = 0; i < shown; ++i)
    largest += fmt::format("\n  {:>12}  {} from {} ({} {}, {})", format_bytes(top[i]->bytes()),
                           name(top[i]->purpose()), top[i]->op(), name(top[i]->dtype()),
                           top[i]->shape().str(), name(top[i]->made().phase));
  const uint64_t most = info().max_block_bytes;
  std::string reason = fmt::format("the device '{}' gave no more memory", info().name);
  if (bytes > most)
    reason = fmt::format("the largest block of '{}' is {}", info().name, format_bytes(most));
  else if (budget_.bytes && live() + bytes > budget_.bytes)
    reason = fmt::format("the memory budget is {} and nothing is left that could be recomputed",
                         format_bytes(budget_.bytes));
  else if (report_.limit)
    reason = fmt::format("the memory limit is {}", format_bytes(report_.limit));
  throw OutOfMemory(fmt::format(
      "[{}] needs {} more in {}: {}; live {}, reserved {}, free {}, largest hole {}. Largest tensors:{}\n"
      "Try a smaller batch with accumulation, checkpoint segments, or f16; a dry run (core/dry_run.h) "
      "tells what each needs.",
      context().op, format_bytes(bytes), name(context().phase), reason, format_bytes(live()),
      format_bytes(reserved()), format_bytes(reserved() - live()),
      format_bytes(arena_.largest_hole()), largest));
}

void Device::update_peaks() {
  const uint64_t live = this->live();
  MemoryReport& r = report_;
  if (live > r.peak) {
    r.peak = live;
    r.peak_by_purpose = r.live_by_purpose;
    r.padding_at_peak = live - requested_live_;
    r.fragmentation_at_peak = reserved() - live - arena_.largest_hole();
  }
  r.peak_reserved = std::max(r.peak_reserved, reserved());
  step_peak_ = std::max(step_peak_, live);
  high_water_ = std::max(high_water_, live);
}

uint64_t Device::take_high_water() {
  const Lock lock(mutex_);
  return std::exchange(high_water_, live());
}

uint64_t Device::live() const {
  const Lock lock(mutex_);
  return arena_.live() + lasting_.live();
}

uint64_t Device::live_budget() const {
  const Lock lock(mutex_);
  return budget_.bytes;
}

uint64_t Device::memory_limit() const {
  const Lock lock(mutex_);
  return report_.limit;
}

void Device::set_memory_limit(uint64_t bytes) {
  const Lock lock(mutex_);
  report_.limit = bytes;
}

WorkByPhase Device::work() const {
  const Lock lock(mutex_);
  return work_;
}

std::vector<StepTrace> Device::step_traces() const {
  const Lock lock(mutex_);
  return planner_.traces();
}

void Device::learn(std::vector<StepTrace> traces) {
  const Lock lock(mutex_);
  planner_.learn(std::move(traces));
}

void Device::set_packs_steps(bool on) {
  const Lock lock(mutex_);
  planner_.set_solves(on);
}

MemoryReport Device::memory_report() const {
  const Lock lock(mutex_);
  MemoryReport r = report_;
  r.live = live();
  r.reserved = reserved();
  r.naive = std::max(r.naive, step_start_ + step_allocated_);
  r.followed_steps = planner_.followed_steps();
  r.plan_misses = planner_.all_misses();
  r.driver_overhead = driver_overhead(*backend_, r.reserved).value_or(0);
  return r;
}

void Device::reset_peak() {
  const Lock lock(mutex_);
  MemoryReport fresh;
  fresh.limit = report_.limit;
  fresh.live_by_purpose = report_.live_by_purpose;
  report_ = fresh;
  work_ = {};
  step_start_ = live();
  step_allocated_ = step_peak_ = 0;
  update_peaks();
}

void Device::end_step() {
  const Lock lock(mutex_);
  report_.naive = step_start_ + step_allocated_;
  planner_.end_step();
  report_.peak_reserved = std::max(report_.peak_reserved, reserved());
  last_step_peak_ = std::exchange(step_peak_, live());
  step_start_ = live();
  step_allocated_ = 0;
  if (tracer_) tracer_->step_ended();
}

Device::LiveBudget Device::exchange_live_budget(LiveBudget budget) {
  const Lock lock(mutex_);
  return std::exchange(budget_, std::move(budget));
}

void Device::start_trace() {
  const Lock lock(mutex_);
  tracer_ = std::make_unique<Tracer>();
  for (const Storage* storage : storages_) tracer_->existed(*storage);
  backend_->time_kernels(true);
}

MemoryTrace Device::stop_trace() {
  const Lock lock(mutex_);
  check(tracer_ != nullptr, "stop_trace", "start_trace() must come first");
  MemoryTrace trace = tracer_->finish();
  tracer_.reset();
  trace.device = info().name;
  trace.limit = report_.limit;
  trace.block_bytes = arena_.block_sizes();
  const std::vector<uint64_t> lasting = lasting_.block_sizes();
  trace.block_bytes.resize(std::max(trace.block_bytes.size(), lasting.size()));
  for (size_t i = 0; i < lasting.size(); ++i) trace.block_bytes[i] += lasting[i];
  trace.times = backend_->kernel_times();
  backend_->time_kernels(false);
  return trace;
}

}  // namespace rw
