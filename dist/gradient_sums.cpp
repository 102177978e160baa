#include "dist/gradient_sums.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/base/context.h"
#include "core/base/thread_state.h"
#include "core/memory/device.h"
#include "core/tensor/launch.h"
#include "core/tensor/primitives.h"

namespace rw {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto element = static_cast<int64_t>(sizeof(float));

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// `count` elements of a dense tensor.
Tensor part_of(const Tensor& t, int64_t begin, int64_t count) {
  return make_view(t, {count}, {1}, t.impl().offset + begin);
}

// Elements of two dense tensors.
void copy_part(const Tensor& source, int64_t from, const Tensor& target, int64_t to,
               int64_t count) {
  if (source.dtype() != target.dtype())
    return copy_into(part_of(source, from, count), part_of(target, to, count));
  const auto at = [](const Tensor& t, int64_t i) {
    return static_cast<uint64_t>(t.impl().offset + i) * size_of(t.dtype());
  };
  target.device().copy(*source.impl().storage, at(source, from), *target.impl().storage,
                       at(target, to), static_cast<uint64_t>(count) * size_of(source.dtype()));
}

// Whether a number is infinite or NaN: all bits of its exponent are set.
template <class Bits>
bool has_overflow(std::span<const std::byte> bytes, Bits exponent) {
  bool found = false;
  for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    found |= (bits & exponent) == exponent;
  }
  return found;
}

bool has_overflow(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::f32) return has_overflow<uint32_t>(bytes, 0x7F800000u);
  return has_overflow<uint16_t>(bytes, dtype == DType::f16 ? 0x7C00u : 0x7F80u);
}

// Starts from the last parameter, whose gradient backward makes first.
std::vector<size_t> first_order(size_t slots) {
  std::vector<size_t> order(slots);
  for (size_t i = 0; i < slots; ++i) order[i] = slots - 1 - i;
  return order;
}

}  // namespace

GradientSums::GradientSums(Communicator& ranks, const FlatParameters& parameters,
                           const GradientSumsOptions& options)
    : ranks_(ranks),
      options_(options),
      parameters_(parameters),
      owners_(parameters.shard() ? std::optional(parameters.ownership()) : std::nullopt),
      buckets_(cut(first_order(slots().size()))) {
  check(options.bucket_bytes > 0, "data_parallel", "buckets must have bytes, got {}",
        options.bucket_bytes);
  check<DTypeError>(is_float(options.transport), "data_parallel",
                    "gradients must be sent as floats, got {}", name(options.transport));
  const std::optional<Shard>& shard = parameters.shard();
  check(!shard || (shard->rank == ranks.rank() && shard->ranks == ranks.size()), "data_parallel",
        "states must be sharded for rank {} of {}, got {} of {}", ranks.rank(), ranks.size(),
        shard ? shard->rank : 0, shard ? shard->ranks : 0);
  set_up_staging();
}

// Makes enough buffers that backward seldom waits for the messages of earlier buckets.
void GradientSums::set_up_staging() {
  const int64_t bucket = std::max<int64_t>(buckets_.largest(), 1) * element;
  const auto buckets = static_cast<int64_t>(buckets_.all().size());
  staging_.clear();
  staging_.resize(static_cast<size_t>(std::min(
      std::max<int64_t>(options_.staging_bytes / bucket, 3), std::max<int64_t>(buckets, 1))));
}

GradientBuckets GradientSums::cut(const std::vector<size_t>& order) const {
  std::vector<int64_t> sizes;
  for (const FlatParameters::Slot& slot : slots()) sizes.push_back(slot.parameter.numel());
  return {std::move(sizes), order,         owners_,
          ranks_.rank(),    ranks_.size(), options_.bucket_bytes / element};
}

void GradientSums::begin() {
  sums_ = {};
  reached_.assign(slots().size(), 0);
  is_open_ = false;
}

// All ranks use rank 0's order.
void GradientSums::learn_order() {
  is_learnt_ = true;
  for (const size_t slot : first_order(slots().size()))
    if (std::ranges::find(completed_, slot) == completed_.end()) completed_.push_back(slot);
  ranks().broadcast(std::as_writable_bytes(std::span(completed_)));
  buckets_ = cut(completed_);
  set_up_staging();
  received_.clear();
}

void GradientSums::begin_pass() {
  if (!options_.overlaps) return;
  if (passes_ > 0 && !is_learnt_ && !sums_) learn_order();
  start_pass();
  is_open_ = true;
}

void GradientSums::start_pass() {
  next_ = 0;
  overflows_ = false;
  arrived_.assign(slots().size(), 0);
}

bool GradientSums::is_complete(const GradientBucket& bucket) const {
  return std::ranges::all_of(bucket.slots, [&](size_t slot) { return arrived_[slot] != 0; });
}

void GradientSums::take(size_t slot) {
  if (!is_open_) return;
  const OpScope scope("data_parallel");
  const PhaseScope phase(Phase::update);
  arrived_[slot] = 1;
  if (passes_ == 0) completed_.push_back(slot);
  while (next_ < buckets_.all().size() && is_complete(buckets_.all()[next_])) send(next_++);
}

void GradientSums::end_pass() {
  const OpScope scope("data_parallel");
  const PhaseScope phase(Phase::update);
  if (!is_open_) start_pass();
  is_open_ = false;
  ++passes_;
  for (size_t slot = 0; slot < slots().size(); ++slot)
    if (slots()[slot].parameter.grad()) arrived_[slot] = 1;
  while (next_ < buckets_.all().size()) send(next_++);
  wait_for(parameters_.device().mark(), thread_.added());
}

// The time that the device takes to get there does not count as waiting for messages.
void GradientSums::wait_for(const std::function<void()>& device, uint64_t job) {
  device();
  traffic_.waited_seconds += thread_.wait(job);
}

// Copies the bucket's gradients, and zeros where none has arrived, once the earlier job has
// finished with the memory.
GradientSums::Staging& GradientSums::fill_staging(const GradientBucket& bucket) {
  Staging& staging = staging_[traffic_.buckets % staging_.size()];
  if (staging.job > 0) wait_for(staging.copy.wait, staging.job);
  Tensor& target = staging.copy.tensor;
  if (!target) target = empty_on_host(buckets_.largest(), options_.transport, parameters_.device());
  buckets_.each_part(bucket, [&](const GradientBuckets::Part& part) {
    const Tensor gradient = slots()[part.slot].parameter.grad();
    if (gradient) copy_part(dense(gradient), part.source, target, part.target, part.size);
    if (const int64_t begin = gradient ? part.size : 0; begin < part.room)
      fill_(part_of(target, part.target + begin, part.room - begin), 0);
  });
  return staging;
}

// Drops the gradients whose last part has been copied.
void GradientSums::drop(const GradientBucket& bucket) {
  buckets_.each_part(bucket, [&](const GradientBuckets::Part& part) {
    const Tensor& parameter = slots()[part.slot].parameter;
    if (part.source + part.size == parameter.numel()) parameter.impl().grad = {};
  });
}

void GradientSums::send(size_t index) {
  const GradientBucket& bucket = buckets_.all()[index];
  Staging& staging = fill_staging(bucket);
  drop(bucket);
  if (is_dry()) return void(++traffic_.buckets);
  staging.copy.mark();
  const size_t size_of_one = size_of(options_.transport);
  const auto bytes = static_cast<size_t>(bucket.size()) * size_of_one;
  received_.resize(buckets_.all().size());
  std::vector<std::byte>& target = received_[index];
  target.resize(static_cast<size_t>(bucket.part(ranks_.rank()) * ranks_.size()) * size_of_one);
  traffic_.gradient_bytes += bytes - static_cast<size_t>(bucket.part(ranks_.rank())) * size_of_one;
  ++traffic_.buckets;
  staging.job = thread_.add([this, bytes, &staging, &target, sizes = bucket.bytes(size_of_one)] {
    staging.copy.wait();
    const std::span<const std::byte> message(staging.copy.bytes, bytes);
    if (has_overflow(options_.transport, message)) overflows_ = true;
    const Clock::time_point start = Clock::now();
    ranks_.all_to_all(message, sizes, target);
    traffic_.gradient_seconds += seconds_since(start);
  });
}

// A dry run has no values to send, but allocates all memory for them.
bool GradientSums::is_dry() const {
  return parameters_.device().backend().is_dry();
}

Tensor GradientSums::workspace(Shape shape, DType dtype) const {
  const PurposeScope purpose(Purpose::workspace);
  return empty(shape, dtype, parameters_.device().shared_from_this());
}

void GradientSums::add(const std::vector<bool>& counts) {
  for (const FlatParameters::Slot& slot : slots())
    check<AutogradError>(!slot.parameter.grad(), "data_parallel",
                         "gradients must come from the optimizer's backward(loss), which sends "
                         "them; got another one of '{}' before step()",
                         slot.name);
  const std::vector<uint8_t> all = gather(ranks(), std::span<const uint8_t>(arrived_));
  for (size_t i = 0; i < all.size(); ++i) reached_[i % slots().size()] |= all[i];
  Device& device = parameters_.device();
  if (!sums_) {
    const PurposeScope purpose(Purpose::optimizer);  // memory that outlives steps lies apart
    sums_ = empty({buckets_.owned()}, DType::f32, device.shared_from_this());
    device.set_purpose(*sums_.impl().storage, Purpose::gradient);
    if (sums_.numel() > 0) fill_(sums_, 0);
  }
  for (size_t i = 0; i < buckets_.all().size(); ++i) {
    const GradientBucket& bucket = buckets_.all()[i];
    const int64_t own = bucket.part(ranks_.rank());
    if (own == 0) continue;
    const Tensor pieces = workspace({ranks_.size(), own}, options_.transport);
    if (!is_dry())
      device.write(*pieces.impl().storage, 0, received_[i].size(), received_[i].data());
    for (size_t rank = 0; rank < counts.size(); ++rank)
      if (counts[rank])
        accumulate(part_of(pieces, static_cast<int64_t>(rank) * own, own),
                   part_of(sums_, bucket.sum, own));
  }
}

Tensor GradientSums::gathered(const GradientBucket& bucket, Tensor part) {
  const std::vector<float> own = part && !is_dry() ? part.to_vector() : std::vector<float>();
  part = {};
  if (is_dry()) return workspace({bucket.size()}, DType::f32);
  std::vector<float> all(static_cast<size_t>(bucket.size()));
  const Clock::time_point start = Clock::now();
  ranks().all_gather(std::as_bytes(std::span(own)), bucket.bytes(sizeof(float)),
                     std::as_writable_bytes(std::span(all)));
  traffic_.update_seconds += seconds_since(start);
  Tensor t = workspace({bucket.size()}, DType::f32);
  t.copy_from(std::span<const float>(all));
  return t;
}

void GradientSums::finish() {
  if (owners_) return keep_own();
  for (size_t i = 0; i < slots().size(); ++i) {
    const Tensor& parameter = slots()[i].parameter;
    const PurposeScope purpose(Purpose::gradient);
    parameter.impl().grad =
        reached_[i] ? empty(parameter.shape(), DType::f32, parameters_.device().shared_from_this())
                    : Tensor();
  }
  for (const GradientBucket& bucket : buckets_.all()) {
    const int64_t own = bucket.part(ranks_.rank());
    const Tensor pieces = gathered(bucket, part_of(sums_, bucket.sum, own));
    buckets_.each_part(bucket, [&](const GradientBuckets::Part& part) {
      if (reached_[part.slot])
        copy_part(pieces, part.target, slots()[part.slot].parameter.grad(), part.source, part.size);
    });
  }
  sums_ = {};
}

// The update of this rank's parts needs no other gradients.
void GradientSums::keep_own() {
  for (size_t i = 0; i < slots().size(); ++i) {
    slots()[i].parameter.impl().grad = {};
    const Tensor& part = slots()[i].part;
    if (part && reached_[i])
      part.impl().grad =
          make_view(sums_, part.shape(), dense_strides(part.shape()), buckets_.sum_of(i));
  }
  sums_ = {};
}

// The statistics that a rank does not have are zero there.
void GradientSums::share_stats(const Tensor& stats) {
  const std::vector<float> here = stats.to_vector();
  const std::vector<float> all = gather(ranks(), std::span<const float>(here));
  std::vector<float> sums(here.size());
  for (size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  Tensor(stats).copy_from(std::span<const float>(sums));
}

void GradientSums::share_parameters() {
  const int rank = ranks_.rank();
  for (const GradientBucket& bucket : buckets_.all()) {
    const int64_t begin = bucket.bounds[static_cast<size_t>(rank)] - bucket.begin;
    Tensor values;
    if (const int64_t own = bucket.part(rank)) {
      values = workspace({own}, DType::f32);
      fill_(values, 0);
      buckets_.each_part(bucket, [&](const GradientBuckets::Part& part) {
        if (part.owner == rank)
          copy_part(parameters_.master(slots()[part.slot]), part.source, values,
                    part.target - begin, part.size);
      });
    }
    const Tensor all = gathered(bucket, std::move(values));
    buckets_.each_part(bucket, [&](const GradientBuckets::Part& part) {
      if (part.owner != rank)
        copy_part(all, part.target, parameters_.master(slots()[part.slot]), part.source, part.size);
    });
  }
}

}  // namespace rw
