// Rows of least costs by units of memory, of which the tables of the dynamic programme (chain.h)
// consist.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rw {

// A cost that means "does not fit". Costs may be added to it: no sum that contains it is less.
inline constexpr float infeasible_cost = 1e30f;

// The costs in 0, 1, ... units, which never rise: nothing fits below `first`, and from `last` - 1
// on all are the same. Few problems change over the whole memory, so only the costs between are
// stored.
struct CostRow {
  uint32_t first = 0, last = 0;   // equal: nothing fits
  const float* costs = nullptr;   // those between, in the store
  float least = infeasible_cost;  // the last cost

  bool is_feasible() const { return first < last; }
};

class CostStore;

// A row in progress, with the least costs of several ways.
class CostDraft {
 public:
  explicit CostDraft(uint32_t units) : costs_(units + size_t{1}) {}

  void clear() {
    end_ = 0;
    least_ = infeasible_cost;
  }
  // Adds another way: in m units, from `first` on, it costs `cost`, plus what `own` costs in m
  // units, plus what `rest` costs in m - `hold` units. Returns how many numbers that took.
  uint32_t add(uint32_t first, float cost, const CostRow& own, const CostRow& rest, uint32_t hold);
  // Adds another row.
  void add(const CostRow& row);

 private:
  friend class CostStore;
  uint32_t units() const { return static_cast<uint32_t>(costs_.size()); }
  void extend(uint32_t end);

  std::vector<float> costs_;
  uint32_t end_ = 0;  // the end of the costs that are set; from there on all are `least_`
  float least_ = infeasible_cost;
};

// Stores the costs of rows.
class CostStore {
 public:
  // A row that costs nothing, in any memory.
  static const CostRow free;

  static float cost(const CostRow& row, uint32_t m) {
    if (!row.is_feasible() || m < row.first) return infeasible_cost;
    // The last cost needs no look into the store.
    return m + 1 < row.last ? *at(row, m) : row.least;
  }
  static const float* at(const CostRow& row, uint32_t m) { return row.costs + (m - row.first); }
  CostRow add(const CostDraft& draft);

 private:
  // Small enough for memory that the last programme gave back.
  static constexpr size_t piece = 16 << 10;

  std::vector<std::unique_ptr<float[]>> pieces_;
  size_t used_ = piece;  // of the last one
};

}  // namespace rw
