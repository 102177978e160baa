#include "core/tensor/weight_copies.h"

#include <algorithm>
#include <tuple>

#include "core/tensor/primitives.h"

namespace rw {

namespace {

// Up to this many elements between two parts are copied with them, such as a norm's weights between
// matrices.
constexpr int64_t largest_gap = 4096;

}  // namespace

// A copy of elements [begin, end) of the storage.
struct WeightCopies::Part {
  int64_t begin = 0, end = 0;
  DType dtype = DType::f16;
  bool used = false;     // since the last update
  Tensor copy = {};      // [end - begin]
  uint32_t version = 0;  // of the storage, when it was copied
};

WeightCopies::WeightCopies(WeightCopyUse use) : use_(use) {}
WeightCopies::~WeightCopies() = default;

bool WeightCopies::can_copy(const Tensor& x) {
  return x.numel() > 0 && last_element(x.shape(), x.strides(), 0) == x.numel();
}

// Fills the part, whose memory is taken under `parameter`, from the storage that `source` lies in.
void WeightCopies::make(Part& part, const Tensor& source) {
  const OpScope scope("weight_copies");
  const Tensor from = make_view(source, {part.end - part.begin}, {1}, part.begin);
  if (!part.copy) {
    const PurposeScope purpose(Purpose::parameter);
    part.copy = empty(from.shape(), part.dtype, source.device().shared_from_this());
  }
  copy_into(from, part.copy);
  part.version = source.impl().storage->version();
}

Tensor WeightCopies::view(const Tensor& x, DType dtype) {
  if (!can_copy(x)) return copy_of(x, dtype);
  const int64_t begin = x.impl().offset, end = begin + x.numel();
  const std::lock_guard lock(mutex_);
  auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) {
    return p.dtype == dtype && p.begin <= begin && end <= p.end;
  });
  if (part == parts_.end()) {
    Part fresh{.begin = begin, .end = end, .dtype = dtype};
    make(fresh, x);
    part = parts_.insert(parts_.end(), std::move(fresh));
  } else if (part->version != x.impl().storage->version()) {
    make(*part, x);
  }
  part->used = true;
  return make_view(part->copy, x.shape(), x.strides(), begin - part->begin);
}

// The parts that were used; parts that lie close together become one.
std::vector<WeightCopies::Part> WeightCopies::joined() const {
  std::vector<const Part*> order;
  for (const Part& part : parts_)
    if (part.used) order.push_back(&part);
  std::sort(order.begin(), order.end(), [](const Part* a, const Part* b) {
    return std::tie(a->dtype, a->begin) < std::tie(b->dtype, b->begin);
  });
  std::vector<Part> all;
  for (const Part* part : order) {
    if (!all.empty() && all.back().dtype == part->dtype &&
        part->begin <= all.back().end + largest_gap) {
      all.back().end = std::max(all.back().end, part->end);
      continue;
    }
    all.push_back({.begin = part->begin, .end = part->end, .dtype = part->dtype});
  }
  return all;
}

void WeightCopies::update(const Tensor& slab) {
  const std::lock_guard lock(mutex_);
  std::vector<Part> wanted = joined();
  for (Part& part : wanted)
    for (Part& old : parts_)
      if (old.dtype == part.dtype && old.begin == part.begin && old.end == part.end)
        part.copy = std::exchange(old.copy, {});
  parts_.clear();  // before new ones take memory
  for (Part& part : wanted) {
    make(part, slab);
    parts_.push_back(std::move(part));
  }
}

uint64_t WeightCopies::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.copy.bytes();
  return sum;
}

}  // namespace rw
