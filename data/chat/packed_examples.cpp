#include "data/chat/packed_examples.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/base/error.h"
#include "data/base/random.h"

namespace rw {

namespace {

constexpr int32_t not_a_target = -100;

int64_t room_of(const InstructionExample& example) {
  return std::ssize(example.tokens) - 1;
}

// The free room of rows, of which the first one with enough is found in the logarithm of their
// number: a tree, each of whose nodes has the most of the two below it.
class FreeRoom {
 public:
  FreeRoom(size_t rows, int64_t room)
      : leaves_(std::bit_ceil(std::max<size_t>(1, rows))), most_(2 * leaves_, room) {}

  // Takes `room` from the first row that has it, and returns that row.
  size_t take(int64_t room) {
    size_t node = 1;
    while (node < leaves_) node = 2 * node + (most_[2 * node] < room);
    const size_t row = node - leaves_;
    most_[node] -= room;
    while (node /= 2) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    return row;
  }

 private:
  const size_t leaves_;
  std::vector<int64_t> most_;
};

}  // namespace

PackedExamples::PackedExamples(std::span<const InstructionExample> examples,
                               const PackedExamplesOptions& options)
    : examples_(examples),
      options_(options),
      rows_(packed(examples, options)),
      order_({.samples = rows_.size(),
              .batch_size = options.batch_size,
              .shuffle = options.shuffle,
              .seed = options.seed}) {}

std::vector<PackedExamples::Row> PackedExamples::packed(
    std::span<const InstructionExample> examples, const PackedExamplesOptions& o) {
  check(o.length > 0, "PackedExamples", "the length of rows must be positive, got {}", o.length);
  check(!examples.empty(), "PackedExamples", "there must be an example, got none");
  check(examples.size() < UINT32_MAX, "PackedExamples",
        "there must be fewer than 2^32 examples, got {}", examples.size());
  std::vector<uint32_t> order(examples.size());
  std::iota(order.begin(), order.end(), 0);
  DataRandom random(o.seed, 0, 1);
  for (size_t i = order.size(); o.shuffle && i > 1; --i)
    std::swap(order[i - 1], order[random.below(i)]);
  FreeRoom free(examples.size(), o.length);
  std::vector<Row> rows;
  for (const uint32_t i : order) {
    const int64_t room = room_of(examples[i]);
    check(room > 0 && room <= o.length, "PackedExamples",
          "an example must have 2 to {} tokens, got {}", o.length + 1, room + 1);
    const size_t row = o.pack ? free.take(room) : rows.size();
    if (row == rows.size()) rows.emplace_back();
    rows[row].push_back(i);
  }
  return rows;
}

double PackedExamples::fill() const {
  int64_t taken = 0;
  for (const InstructionExample& example : examples_) taken += room_of(example);
  return static_cast<double>(taken) / static_cast<double>(rows() * options_.length);
}

void PackedExamples::put(const Row& row, size_t at, InstructionBatch& batch) const {
  const size_t end = at + static_cast<size_t>(options_.length), first = at;
  for (const uint32_t i : row) {
    const InstructionExample& example = examples_[i];
    const size_t start = at;
    for (size_t t = 0; t + 1 < example.tokens.size(); ++t, ++at) {
      batch.ids[at] = example.tokens[t];
      batch.starts[at] = static_cast<int32_t>(start - first);
      if (example.counts[t + 1]) batch.targets[at] = example.tokens[t + 1];
    }
    batch.counted += example.targets();
  }
  std::fill(batch.starts.begin() + static_cast<ptrdiff_t>(at),
            batch.starts.begin() + static_cast<ptrdiff_t>(end), static_cast<int32_t>(at - first));
}

InstructionBatch PackedExamples::batch(int64_t epoch, int64_t index) {
  const auto chosen = order_.batch(epoch, index);
  const size_t length = static_cast<size_t>(options_.length), all = chosen.size() * length;
  InstructionBatch batch{.rows = static_cast<int64_t>(chosen.size()), .length = options_.length};
  batch.ids.resize(all);
  batch.targets.resize(all, not_a_target);
  batch.starts.resize(all);
  for (size_t i = 0; i < chosen.size(); ++i) put(rows_[chosen[i]], i * length, batch);
  return batch;
}

}  // namespace rw
