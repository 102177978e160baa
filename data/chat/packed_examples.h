// Examples of instructions in rows of equal length, for training.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../base/batch_order.h"
#include "instructions.h"

namespace rw {

// How examples become batches.
struct PackedExamplesOptions {
  int64_t length = 1024;   // tokens of a row
  int64_t batch_size = 4;  // rows per batch
  bool pack = true;        // rows hold as many examples as there is room for; false: one each
  bool shuffle = true;     // examples fill rows in a random order, and rows come in another one in
                           // every epoch
  uint64_t seed = 0;       // of both
};

// Some rows, row-major [rows, length].
struct InstructionBatch {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> ids;      // tokens; 0 behind the last example
  std::vector<int32_t> targets;  // the token that follows each, or -100: that does not count
  std::vector<int32_t> starts;   // where in its row the example of each begins
  int64_t counted = 0;           // targets that count
};

// Makes batches of rows, any at any time: a pure function of (seed, epoch, index). The examples are
// packed once, in a random order, each into the first row that has room for it; so each epoch has
// the same rows. An example's last token is only a target and takes no room.
class PackedExamples {
 public:
  // The examples must outlive this. ValueError for options that are not positive, if there are no
  // examples, and for one that is longer than a row and a target.
  PackedExamples(std::span<const InstructionExample> examples,
                 const PackedExamplesOptions& options);

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }  // per epoch
  int64_t batches() const { return order_.batches(); }                 // the same
  uint64_t seed() const { return options_.seed; }  // PackedExamplesOptions::seed
  double fill() const;                             // the share of the rows that examples take
  // Batch `index`, in [0, batches()), of an epoch from 0 on; the last one may have fewer rows.
  // ValueError otherwise.
  InstructionBatch batch(int64_t epoch, int64_t index);

 private:
  using Row = std::vector<uint32_t>;  // examples, in their order

  static std::vector<Row> packed(std::span<const InstructionExample> examples,
                                 const PackedExamplesOptions& options);
  void put(const Row& row, size_t at, InstructionBatch& batch) const;

  std::span<const InstructionExample> examples_;
  PackedExamplesOptions options_;
  std::vector<Row> rows_;
  BatchOrder order_;
};

}  // namespace rw
