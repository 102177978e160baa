#include "core/memory/device.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/recycled.h"
#include "core/memory/process_memory.h"
#include "core/memory/tracer.h"

namespace rw {

namespace {

std::atomic<uint64_t> next_number = 1;

// The limit that the environment sets for a device that is opened without one. It holds from the
// first tensor on, before an optimizer reads it. Dry runs obey their callers instead.
uint64_t limit_from_environment(const Backend& backend) {
  if (!reads_environment || backend.is_dry()) return 0;
  const std::string budget = env_memory_budget();
  return budget.empty() ? 0 : parse_bytes(budget);
}

BufferRange part_of(const Arena::Range& range, uint64_t offset, uint64_t bytes) {
  return {range.block, range.offset + offset, bytes};
}
BufferRange bytes_of(const Storage& storage) {
  return part_of(storage.range(), 0, storage.bytes());
}

}  // namespace

Device::Device(std::unique_ptr<Backend> backend, uint64_t memory_limit)
    : number_(next_number++),
      backend_(std::move(backend)),
      pool_(*backend_, memory_limit, [this] { return places(); }) {}

std::shared_ptr<Device> Device::create(std::unique_ptr<Backend> backend, uint64_t memory_limit) {
  if (memory_limit == 0) memory_limit = limit_from_environment(*backend);
  return std::shared_ptr<Device>(new Device(std::move(backend), memory_limit));
}

Device::~Device() {
  trim();
}

std::shared_ptr<Storage> Device::adopt(const std::shared_ptr<std::byte>& memory, const Shape& shape,
                                       DType dtype) {
  const Lock lock(mutex_);
  const auto place = pool_.adopt(memory, static_cast<uint64_t>(shape.numel()) * size_of(dtype));
  if (!place) return nullptr;
  auto storage =
      std::allocate_shared<Storage>(Recycled<Storage>(), shared_from_this(), *this, shape, dtype);
  storage->place_ = *place;
  link(*storage);
  return storage;
}

std::byte* Device::pin(Storage& storage) {
  const Lock lock(mutex_);
  if (storage.is_swapped_out() || storage.place() != MemoryPlace::device) return nullptr;
  if (!backend_->host_address(bytes_of(storage))) return nullptr;
  // Within a limit values of steps move to make room. One that must not gets memory of its own,
  // which no limit is about.
  const bool may_move = storage.place_.part == MemoryPool::Part::steps && !storage.stays();
  if (pool_.most() < UINT64_MAX && may_move) {
    const Arena::Range own{backend_->allocate_block(storage.bytes()), 0, storage.bytes()};
    backend_->copy(bytes_of(storage), own);
    displace(storage);
    storage.place_ = {.range = own, .part = MemoryPool::Part::outside};
  }
  ++storage.place_.pins;
  return backend_->host_address(bytes_of(storage));
}

void Device::unpin(Storage& storage) noexcept {
  const Lock lock(mutex_);
  --storage.place_.pins;
}

std::shared_ptr<Storage> Device::allocate(const Shape& shape, DType dtype) {
  const Lock lock(mutex_);
  if (step_ends_soon_) end_step();
  const MemoryPool::Allocation taken = take(static_cast<uint64_t>(shape.numel()) * size_of(dtype));
  auto storage =
      std::allocate_shared<Storage>(Recycled<Storage>(), shared_from_this(), *this, shape, dtype);
  storage->place_ = taken;
  link(*storage);
  place(*storage);
  return storage;
}

void Device::release(Storage& storage) noexcept {
  const Lock lock(mutex_);
  unlink(storage);
  if (storage.host_.range.size > 0) pool_.release(storage.host_);
  if (!storage.is_swapped_out()) displace(storage);
}

// Books the memory that it was given.
void Device::place(Storage& storage) {
  if (storage.place() == MemoryPlace::host) return account_.allocated_on_host(pool_);
  account_.allocated(storage.purpose(), storage.bytes(), storage.range().size, pool_);
  if (tracer_) tracer_->allocated(storage);
}

void Device::displace(Storage& storage) noexcept {
  if (storage.place() == MemoryPlace::device && !storage.is_outside()) {
    account_.freed(storage.purpose(), storage.bytes_);
    if (tracer_) tracer_->freed(storage);
  }
  pool_.release(storage.place_);
}

void Device::swap_out(Storage& storage) {
  const Lock lock(mutex_);
  if (storage.stays() || std::exchange(storage.is_swapped_out_, true)) return;
  displace(storage);
}

void Device::swap_in(Storage& storage) {
  const Lock lock(mutex_);
  if (!storage.is_swapped_out_) return;
  if (step_ends_soon_) end_step();
  {
    const PlaceScope on_device(MemoryPlace::device);
    const PurposeScope purpose(storage.purpose());
    storage.place_ = take(storage.bytes());
  }
  storage.is_swapped_out_ = false;
  place(storage);
  if (storage.host_.range.size == 0) return;
  copy_all(storage, storage.host_.range, storage.range());
  storage.host_version_ = storage.version();
  if (!storage.keeps_host_copy_) pool_.release(std::exchange(storage.host_, {}));
}

bool Device::to_host(Storage& storage) {
  const Lock lock(mutex_);
  if (storage.is_swapped_out()) return storage.is_on_host();
  if (storage.stays()) return false;
  if (storage.place() == MemoryPlace::host) {
    if (storage.keeps_host_copy_) {  // its memory becomes the copy
      storage.host_ = std::exchange(storage.place_, {});
      storage.host_version_ = storage.version();
      storage.is_swapped_out_ = true;
    }
    return true;
  }
  const bool is_new = storage.host_.range.size == 0;
  if (is_new) {
    const auto host = pool_.take(storage.bytes(), MemoryPool::Part::host);
    if (!host) return false;
    account_.allocated_on_host(pool_);
    storage.host_ = *host;
  }
  if (is_new || storage.host_version_ != storage.version())
    copy_all(storage, storage.range(), storage.host_.range);
  swap_out(storage);
  return true;
}

void Device::activations_to_host(uint64_t age, uint64_t least_bytes) {
  const Lock lock(mutex_);
  for (Storage* s = newest_; s && s->id() > age; s = s->previous_)
    if (s->purpose() == Purpose::activation && s->bytes() >= least_bytes) to_host(*s);
}

// Kernels bring back what is away; nobody asks its keeper for the host.
const Arena::Range& Device::where(const Storage& storage) {
  if (storage.is_on_host()) return storage.host_.range;
  check<DeviceError>(!storage.is_swapped_out(), context().op,
                     "{} {} must be in the device's memory, got one that ranks keep in parts: "
                     "DataParallel::gather_parameters() brings all of it",
                     storage.shape(), name(storage.dtype()));
  return storage.range();
}

// This is no write, since the contents stay the same.
void Device::copy_all(const Storage& storage, const Arena::Range& from, const Arena::Range& to) {
  work_[static_cast<int>(context().phase)].offloaded += storage.bytes();
  backend_->copy(part_of(from, 0, storage.bytes()), part_of(to, 0, storage.bytes()));
}

void Device::restore(Storage& target, const void* source) {
  const Lock lock(mutex_);
  backend_->write(part_of(where(target), 0, target.bytes()), source);
}

void Device::link(Storage& storage) {
  storage.previous_ = newest_;
  if (newest_) newest_->next_ = &storage;
  newest_ = &storage;
}

void Device::unlink(Storage& storage) noexcept {
  if (storage.previous_) storage.previous_->next_ = storage.next_;
  (storage.next_ ? storage.next_->previous_ : newest_) = storage.previous_;
}

// Whether it takes memory of the device's pool.
bool Device::is_here(const Storage& s) {
  return s.place() == MemoryPlace::device && !s.is_swapped_out() && !s.is_outside();
}

std::vector<const Storage*> Device::storages() const {
  std::vector<const Storage*> all;
  for (const Storage* s = newest_; s; s = s->previous_)
    if (is_here(*s)) all.push_back(s);
  return all;
}

std::vector<MemoryPool::Allocation*> Device::places() const {
  std::vector<MemoryPool::Allocation*> all;
  for (Storage* s = newest_; s; s = s->previous_)
    if (is_here(*s)) all.push_back(&s->place_);
  return all;
}

void Device::set_purpose(Storage& storage, Purpose purpose) {
  const Lock lock(mutex_);
  const Purpose before = std::exchange(storage.made_.purpose, purpose);
  if (!is_here(storage)) return;
  account_.changed(before, purpose, storage.bytes_);
  if (tracer_) tracer_->changed(storage);
}

std::string Device::str() const {
  return fmt::format("{}{} '{}' (device {})", backend_->is_dry() ? "dry " : "", info().backend,
                     info().name, number_);
}

void Device::run(const KernelCall& call, std::span<Storage* const> written) {
  const Lock lock(mutex_);
  for (Storage* storage : written) storage->count_write();
  if (HostWorkScope::is_open()) return run_on_host(call);
  Context& here = context();
  Work& work = work_[static_cast<int>(here.phase)];
  const uint64_t bytes = bytes_moved(call);
  work.flops += call.flops;
  work.bytes += bytes;
  here.queued.flops += call.flops;
  here.queued.bytes += bytes;
  ++work.calls;
  if (pool_.host_live() > 0)
    for (const Binding& b : call.bindings)
      if (pool_.is_on_host(b.range.block)) work.over_bus += bytes_moved(b);
  if (tracer_) tracer_->called(call);
  backend_->run(call);
}

// FLOPs count as the bytes of as much time, as in OpCost.
void Device::run_on_host(const KernelCall& call) {
  for (const Binding& b : call.bindings)
    check<DeviceError>(pool_.is_on_host(b.range.block), call.kernel,
                       "what the host's processor computes with must lie in host memory, got bytes "
                       "of the device's");
  work_[static_cast<int>(context().phase)].on_host +=
      bytes_moved(call) + static_cast<uint64_t>(call.flops / 20);
  backend_->run_on_host(call);
}

std::shared_ptr<const Preparation> Device::prepare(const KernelCall& call) const {
  return HostWorkScope::is_open() ? backend_->prepare_on_host(call) : backend_->prepare(call);
}

void Device::write(Storage& target, uint64_t offset, uint64_t bytes, const void* source) {
  const Lock lock(mutex_);
  const BufferRange range = part_of(where(target), offset, bytes);
  target.count_write();
  backend_->write(range, source);
}

void Device::read(const Storage& source, uint64_t offset, uint64_t bytes, void* target) {
  const Lock lock(mutex_);
  backend_->read(part_of(where(source), offset, bytes), target);
}

void Device::copy(const Storage& source, uint64_t source_offset, Storage& target,
                  uint64_t target_offset, uint64_t bytes) {
  const Lock lock(mutex_);
  const BufferRange from = part_of(where(source), source_offset, bytes);
  const BufferRange to = part_of(where(target), target_offset, bytes);
  target.count_write();
  Work& work = work_[static_cast<int>(context().phase)];
  work.bytes += 2 * bytes;
  if (pool_.is_on_host(from.block) != pool_.is_on_host(to.block)) work.over_bus += bytes;
  context().queued.bytes += 2 * bytes;
  backend_->copy(from, to);
}

std::function<void()> Device::mark() {
  const Lock lock(mutex_);
  return backend_->mark();
}

const std::byte* Device::host_bytes(const Storage& storage) {
  const Lock lock(mutex_);
  return backend_->host_bytes({storage.range().block, storage.range().offset, storage.bytes()});
}

void Device::synchronize() {
  const Lock lock(mutex_);
  backend_->synchronize();
}

MemoryPool::Allocation Device::take(uint64_t bytes) {
  using Part = MemoryPool::Part;
  if (context().place == MemoryPlace::host) {
    const auto place = pool_.take(bytes, Part::host);
    if (!place) out_of_host_memory(bytes);
    return *place;
  }
  // Memory that is freed to make room for an allocation is freed before it, and layouts learn it
  // so.
  const uint64_t size = pool_.size_of(bytes), most = pool_.most(), moves = pool_.moves();
  while (pool_.live() + size > most)
    if (!reclaim_ || !reclaim_(pool_.live() + size - most)) out_of_memory(bytes);
  const Purpose purpose = context().purpose;
  const bool lasts = purpose == Purpose::parameter || purpose == Purpose::optimizer;
  const auto place = pool_.take(bytes, lasts ? Part::lasting : Part::steps, reclaim_);
  if (tracer_ && pool_.moves() != moves)
    for (const Storage* storage : storages()) tracer_->moved(*storage);
  if (!place) out_of_memory(bytes);
  return *place;
}

void Device::trim() {
  const Lock lock(mutex_);
  pool_.trim();
}

void Device::out_of_memory(uint64_t bytes) const {
  std::vector<const Storage*> top = storages();
  const size_t shown = std::min<size_t>(5, top.size());
  std::partial_sort(top.begin(), top.begin() + shown, top.end(), [](auto* a, auto* b) {
    return std::pair(b->bytes(), a->id()) < std::pair(a->bytes(), b->id());
  });
  std::string largest;
  for (size_t i = 0; i < shown; ++i)
    largest += fmt::format("\n  {:>12}  {} from {} ({} {}, {})", format_bytes(top[i]->bytes()),
                           name(top[i]->purpose()), top[i]->op(), name(top[i]->dtype()),
                           top[i]->shape().str(), name(top[i]->made().phase));
  throw OutOfMemory(
      fmt::format("[{}] needs {} more in {} ({}): {}. Live {}, reserved {}, largest hole {}. "
                  "Largest tensors:{}\n"
                  "Try a smaller batch with accumulation, checkpoint segments, or f16; a dry run "
                  "(planner/dry_run.h) tells what each needs.",
                  context().op, format_bytes(bytes), name(context().phase), request_text(bytes),
                  refusal_text(bytes), exact_bytes(live()), exact_bytes(pool_.reserved()),
                  exact_bytes(pool_.largest_hole()), largest));
}

std::string Device::request_text(uint64_t bytes) const {
  return fmt::format("{} bytes, which take {} in units of {}", bytes, pool_.size_of(bytes),
                     info().alignment);
}

std::string Device::refusal_text(uint64_t bytes) const {
  const uint64_t largest = info().max_block_bytes, most = pool_.most();
  const uint64_t needed = live() + pool_.size_of(bytes);
  if (bytes > largest)
    return fmt::format("the largest block of '{}' is {}", info().name, exact_bytes(largest));
  if (most == UINT64_MAX || pool_.room() >= pool_.size_of(bytes))
    return fmt::format("the device '{}' gave no more memory ({})", info().name, pool_.refusal());
  const bool is_budget = most == pool_.budget();
  std::string reason =
      fmt::format("the memory {} is {}", is_budget ? "budget" : "limit", exact_bytes(most));
  if (reclaim_) reason += " and nothing is left that could be recomputed";
  if (advice_) reason += advice_();
  return needed > most
             ? fmt::format("{}; with this value {} would be live", reason, exact_bytes(needed))
             : fmt::format("{}; that would do if blocks of '{}' could be larger than {}", reason,
                           info().name, exact_bytes(largest));
}

void Device::out_of_host_memory(uint64_t bytes) const {
  const uint64_t most = info().max_block_bytes;
  throw OutOfMemory(fmt::format(
      "[{}] needs {} more of host memory in {}: {}; {} of it are in use by '{}'", context().op,
      format_bytes(bytes), name(context().phase),
      bytes > most ? fmt::format("the largest block is {}", format_bytes(most)) : pool_.refusal(),
      format_bytes(pool_.host_live()), info().name));
}

uint64_t Device::take_high_water() {
  const Lock lock(mutex_);
  return account_.take_high_water(pool_);
}

uint64_t Device::live() const {
  const Lock lock(mutex_);
  return pool_.live();
}

uint64_t Device::budget() const {
  const Lock lock(mutex_);
  return pool_.budget();
}

uint64_t Device::moves() const {
  const Lock lock(mutex_);
  return pool_.moves();
}

uint64_t Device::memory_limit() const {
  const Lock lock(mutex_);
  return pool_.limit();
}

void Device::set_memory_limit(uint64_t bytes) {
  const Lock lock(mutex_);
  pool_.set_limit(bytes);
}

WorkByPhase Device::work() const {
  const Lock lock(mutex_);
  return work_;
}

std::vector<StepTrace> Device::step_traces() const {
  const Lock lock(mutex_);
  return pool_.layouts().traces();
}

void Device::learn(std::vector<StepTrace> traces) {
  const Lock lock(mutex_);
  pool_.layouts().learn(std::move(traces));
}

void Device::set_packs_steps(bool on) {
  const Lock lock(mutex_);
  pool_.layouts().set_solves(on);
}

MemoryReport Device::memory_report() const {
  const Lock lock(mutex_);
  MemoryReport r = account_.report(pool_);
  r.limit = pool_.limit();
  r.moved = pool_.moved();
  r.followed_steps = pool_.layouts().followed_steps();
  r.plan_misses = pool_.layouts().all_misses();
  r.driver_overhead = driver_overhead(*backend_, r.reserved).value_or(0);
  return r;
}

void Device::reset_peak() {
  const Lock lock(mutex_);
  work_ = {};
  pool_.reset_peak();
  account_.reset_peak(pool_);
}

void Device::end_step() {
  const Lock lock(mutex_);
  step_ends_soon_ = false;
  pool_.end_step();
  account_.end_step(pool_);
  if (tracer_) tracer_->step_ended();
}

void Device::end_step_soon() {
  const Lock lock(mutex_);
  step_ends_soon_ = true;
}

Device::Budget Device::exchange_budget(Budget budget) {
  const Lock lock(mutex_);
  Budget before{pool_.budget(), std::exchange(reclaim_, std::move(budget.reclaim)),
                std::exchange(advice_, std::move(budget.advice))};
  pool_.set_budget(budget.bytes);
  return before;
}

void Device::start_trace() {
  const Lock lock(mutex_);
  tracer_ = std::make_unique<Tracer>();
  for (const Storage* storage : storages()) tracer_->existed(*storage);
  backend_->time_kernels(true);
}

MemoryTrace Device::stop_trace() {
  const Lock lock(mutex_);
  check(tracer_ != nullptr, "stop_trace", "start_trace() must come first");
  MemoryTrace trace = tracer_->finish();
  tracer_.reset();
  trace.device = info().name;
  trace.limit = pool_.limit();
  trace.block_bytes = pool_.block_sizes();
  trace.times = backend_->kernel_times();
  backend_->time_kernels(false);
  return trace;
}

}  // namespace rw
