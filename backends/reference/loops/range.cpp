#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

int32_t class_of(uint32_t bits, uint32_t least_normal) {
  if (bits > INFINITY_BITS) return RANGE_NANS;
  if (bits == INFINITY_BITS) return RANGE_INFINITIES;
  if (bits == 0) return RANGE_ZEROS;
  return bits >= least_normal ? RANGE_NORMALS : RANGE_DENORMALS;
}

}  // namespace

void value_range(const Call& call) {
  const auto p = call.params<ValueRangeParams>();
  const bool flat = call.variant(0) == 1;
  const Elements x = call.in(0);
  Elements row = call.inout(1);
  const auto scale = static_cast<float>(p.scaled == 1 ? call.in(2).get(STATE_SCALE) : 1);
  const auto least_normal = std::bit_cast<uint32_t>(p.least_normal * scale);
  int32_t counts[RANGE_SIZE] = {};
  for (uint64_t i = 0; i < p.n; ++i) {
    const auto value = static_cast<float>(x.get(flat ? i : strided(i, p.rank, p.shape, p.stride)));
    const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
    const int32_t kind = class_of(bits, least_normal);
    ++counts[kind];
    if (kind != RANGE_NORMALS && kind != RANGE_DENORMALS) continue;
    counts[RANGE_LARGEST] = std::max(counts[RANGE_LARGEST], static_cast<int32_t>(bits));
    counts[RANGE_LEAST] = std::max(counts[RANGE_LEAST], static_cast<int32_t>(INFINITY_BITS - bits));
  }
  for (int32_t k = 0; k < RANGE_LARGEST; ++k) row.seti(k, row.geti(k) + counts[k]);
  for (const int32_t k : {RANGE_LARGEST, RANGE_LEAST})
    row.seti(k, std::max(row.geti(k), counts[k]));
}

namespace {

// A row of counts and its history.
class Row {
 public:
  Row(const RangeHistoryParams& p, Elements& rows, Elements& history, uint64_t row, float scale)
      : p_(p), history_(history), at_(row * HISTORY_SIZE), scale_(scale) {
    for (uint64_t i = 0; i < RANGE_SIZE; ++i) {
      counts_[i] = rows.geti(row * RANGE_SIZE + i);
      rows.seti(row * RANGE_SIZE + i, 0);
    }
  }

  void take() {
    const int32_t infinite = counts_[RANGE_NANS] + counts_[RANGE_INFINITIES];
    const int32_t normals = counts_[RANGE_NORMALS], denormals = counts_[RANGE_DENORMALS];
    if (p_.step == 0 || infinite + normals + denormals + counts_[RANGE_ZEROS] == 0) return;
    tally(HISTORY_STEPS);
    if (infinite > 0) {
      note(HISTORY_OVERFLOW, counts_[RANGE_NANS], counts_[RANGE_INFINITIES]);
      tally(HISTORY_OVERFLOWS);
    }
    if (denormals > normals) {
      note(HISTORY_UNDERFLOW, denormals, normals);
      tally(HISTORY_UNDERFLOWS);
    }
    if (infinite + normals + denormals == 0) tally(HISTORY_ZEROS);
    widen(HISTORY_LARGEST, counts_[RANGE_LARGEST]);
    widen(HISTORY_LEAST, counts_[RANGE_LEAST]);
  }

 private:
  void note(uint64_t word, int32_t first, int32_t second) {
    if (history_.geti(at_ + word) != 0) return;
    const int32_t noted[] = {static_cast<int32_t>(p_.step), static_cast<int32_t>(p_.update), first,
                             second, std::bit_cast<int32_t>(scale_)};
    for (uint64_t i = 0; i < 5; ++i) history_.seti(at_ + word + i, noted[i]);
  }
  void tally(uint64_t word) { history_.seti(at_ + word, history_.geti(at_ + word) + 1); }
  void widen(uint64_t word, int32_t bits) {
    history_.seti(at_ + word, std::max(history_.geti(at_ + word), bits));
  }

  const RangeHistoryParams& p_;
  Elements& history_;
  uint64_t at_;
  float scale_;
  int32_t counts_[RANGE_SIZE];
};

}  // namespace

void range_history(const Call& call) {
  const auto p = call.params<RangeHistoryParams>();
  Elements rows = call.inout(0), history = call.inout(1);
  const auto scale = static_cast<float>(call.in(2).get(STATE_SCALE));
  for (uint64_t i = 0; i < p.rows; ++i) Row(p, rows, history, i, scale).take();
}

}  // namespace rw::reference
