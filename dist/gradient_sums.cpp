#include "rewind/dist/gradient_sums.h"

#include <algorithm>

#include "rewind/core/base/context.h"
#include "rewind/core/base/thread_state.h"
#include "rewind/core/memory/device.h"
#include "rewind/core/tensor/launch.h"
#include "rewind/core/tensor/primitives.h"

namespace rw {

namespace {

constexpr auto element = static_cast<int64_t>(sizeof(float));

// Elements of two dense f32 tensors.
void copy_elements(const Tensor& source, int64_t from, const Tensor& target, int64_t to,
                   int64_t count) {
  const auto at = [](const Tensor& t, int64_t i) {
    return static_cast<uint64_t>((t.impl().offset + i) * element);
  };
  target.device().copy(*source.impl().storage, at(source, from), *target.impl().storage,
                       at(target, to), static_cast<uint64_t>(count * element));
}

// Row `i` of a dense [rows, columns].
Tensor row(const Tensor& t, int64_t i, int64_t columns) {
  return make_view(t, {columns}, {1}, i * columns);
}

}  // namespace

GradientSums::GradientSums(Communicator& ranks, const FlatParameters& parameters,
                           int64_t staging_bytes)
    : ranks_(ranks) {
  check(staging_bytes >= element * ranks.size(), "data_parallel",
        "messages must have an element for each rank, got {} bytes", staging_bytes);
  const std::optional<Shard>& shard = parameters.shard();
  check(!shard || *shard == Shard{ranks.rank(), ranks.size()}, "data_parallel",
        "states must be sharded for rank {} of {}, got {} of {}", ranks.rank(), ranks.size(),
        shard ? shard->rank : 0, shard ? shard->ranks : 0);
  std::vector<int64_t> begins = {0};  // of the slabs
  for (const FlatParameters::Slab& slab : parameters.slabs())
    begins.push_back(begins.back() + slab.parameters.numel());
  for (const FlatParameters::Slot& slot : parameters.slots())
    places_.push_back({begins[slot.slab] + slot.offset, slot.parameter.numel()});
  bounds_.assign(static_cast<size_t>(ranks.size()) + 1, begins.back());
  place_bounds(parameters);
  for (size_t rank = 0; rank + 1 < bounds_.size(); ++rank)
    longest_ = std::max(longest_, bounds_[rank + 1] - bounds_[rank]);
  piece_ = std::min(longest_, staging_bytes / element / ranks.size());
}

void GradientSums::place_bounds(const FlatParameters& parameters) {
  const int64_t ranks = ranks_.size(), end = bounds_.back(), part = (end + ranks - 1) / ranks;
  size_t slot = 0;  // the first one of this rank or a later one
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t& bound = bounds_[static_cast<size_t>(rank)];
    bound = std::min(rank * part, end);
    if (!parameters.shard()) continue;
    while (slot < places_.size() && parameters.slots()[slot].owner < rank) ++slot;
    if (rank > 0) bound = slot < places_.size() ? places_[slot].begin : end;
  }
}

// Of those that begin there, the last one: the others have nothing.
size_t GradientSums::owner_of(int64_t element) const {
  const auto above = std::upper_bound(bounds_.begin(), bounds_.end() - 1, element);
  return static_cast<size_t>(above - bounds_.begin()) - 1;
}

void GradientSums::begin() {
  sums_ = {};
  reached_.assign(places_.size(), 0);
}

// Round i has the i-th piece of every rank's part, by rank.
void GradientSums::each_part(int64_t round, const std::function<void(const Part&)>& use) const {
  for (size_t slot = 0; slot < places_.size(); ++slot) {
    const auto [first, size] = places_[slot];
    if (size == 0) continue;
    for (size_t rank = owner_of(first); bounds_[rank] < first + size; ++rank) {
      const int64_t piece = bounds_[rank] + round * piece_;
      const int64_t begin = std::max(first, piece);
      const int64_t end = std::min({first + size, piece + piece_, bounds_[rank + 1]});
      const int64_t row = static_cast<int64_t>(rank) * piece_;
      if (begin < end) use({slot, begin - first, row + begin - piece, end - begin});
    }
  }
}

// Zeros, as what no gradient comes to is added, too.
Tensor GradientSums::staging(const FlatParameters& parameters) const {
  const PurposeScope purpose(Purpose::workspace);
  Tensor t = empty({ranks_.size(), piece_}, DType::f32, parameters.device().shared_from_this());
  fill_(t, 0);
  return t;
}

void GradientSums::take_reached(const FlatParameters& parameters) {
  std::vector<uint8_t> own;
  for (const FlatParameters::Slot& slot : parameters.slots())
    own.push_back(slot.parameter.grad().defined());
  const std::vector<uint8_t> all = gather(ranks_, std::span<const uint8_t>(own));
  for (size_t i = 0; i < all.size(); ++i) reached_[i % own.size()] |= all[i];
}

void GradientSums::add(const FlatParameters& parameters, const std::vector<bool>& counts) {
  take_reached(parameters);
  Tensor pieces = staging(parameters);
  if (!sums_) {
    const PurposeScope purpose(Purpose::optimizer);  // what outlives steps lies apart
    sums_ = empty({rounds(), piece_}, DType::f32, parameters.device().shared_from_this());
    sums_.device().set_purpose(*sums_.impl().storage, Purpose::gradient);
    fill_(sums_, 0);
  }
  const auto& slots = parameters.slots();
  std::vector<Tensor> gradients;
  for (const FlatParameters::Slot& slot : slots)
    gradients.push_back(slot.parameter.grad() ? dense(slot.parameter.grad()) : Tensor());
  for (int64_t round = 0; round < rounds(); ++round) {
    if (round > 0) fill_(pieces, 0);
    each_part(round, [&](const Part& part) {
      if (const Tensor& gradient = gradients[part.slot])
        copy_elements(gradient, part.source, pieces, part.target, part.size);
    });
    here_ = pieces.to_vector();
    there_.resize(here_.size());
    ranks_.all_to_all(std::as_bytes(std::span(here_)), std::as_writable_bytes(std::span(there_)));
    pieces.copy_from(std::span<const float>(there_));
    for (size_t rank = 0; rank < counts.size(); ++rank)
      if (counts[rank])
        accumulate(row(pieces, static_cast<int64_t>(rank), piece_), row(sums_, round, piece_));
  }
}

void GradientSums::finish(const FlatParameters& parameters) {
  if (parameters.shard()) return keep_own(parameters);
  Tensor pieces = staging(parameters);
  const auto& slots = parameters.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    TensorImpl& impl = slots[i].parameter.impl();
    const PurposeScope purpose(Purpose::gradient);
    if (!reached_[i])
      impl.grad = {};
    else if (!impl.grad || !impl.grad.is_contiguous())
      impl.grad =
          empty(slots[i].parameter.shape(), DType::f32, parameters.device().shared_from_this());
  }
  for (int64_t round = 0; round < rounds(); ++round) {
    here_ = row(sums_, round, piece_).to_vector();
    there_ = gather(ranks_, std::span<const float>(here_));
    pieces.copy_from(std::span<const float>(there_));
    each_part(round, [&](const Part& part) {
      if (reached_[part.slot])
        copy_elements(pieces, part.target, slots[part.slot].parameter.grad(), part.source,
                      part.size);
    });
  }
  sums_ = {};
}

// The update of what is owned here needs no other gradients.
void GradientSums::keep_own(const FlatParameters& parameters) {
  const auto& slots = parameters.slots();
  const int64_t begin = bounds_[static_cast<size_t>(ranks_.rank())];
  for (size_t i = 0; i < slots.size(); ++i) {
    Tensor& gradient = slots[i].parameter.impl().grad;
    gradient = {};
    if (!reached_[i] || slots[i].owner != ranks_.rank()) continue;
    const Shape& shape = slots[i].parameter.shape();
    gradient = make_view(sums_, shape, dense_strides(shape), places_[i].begin - begin);
  }
  sums_ = {};
}

// What a rank has not is zero there.
void GradientSums::share_stats(const Tensor& stats) {
  const std::vector<float> here = stats.to_vector();
  const std::vector<float> all = gather(ranks_, std::span<const float>(here));
  std::vector<float> sums(here.size());
  for (size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  Tensor(stats).copy_from(std::span<const float>(sums));
}

void GradientSums::share_parameters(const FlatParameters& parameters) {
  Tensor pieces = staging(parameters);
  const auto& slots = parameters.slots();
  const int64_t own = ranks_.rank();
  for (int64_t round = 0; round < rounds(); ++round) {
    each_part(round, [&](const Part& part) {
      const FlatParameters::Slot& slot = slots[part.slot];
      if (slot.owner == own)
        copy_elements(parameters.master(slot), part.source, pieces, part.target, part.size);
    });
    here_ = row(pieces, own, piece_).to_vector();
    there_ = gather(ranks_, std::span<const float>(here_));
    pieces.copy_from(std::span<const float>(there_));
    each_part(round, [&](const Part& part) {
      const FlatParameters::Slot& slot = slots[part.slot];
      if (slot.owner != own)
        copy_elements(pieces, part.target, parameters.master(slot), part.source, part.size);
    });
  }
}

}  // namespace rw
