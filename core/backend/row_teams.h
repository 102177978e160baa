// How reductions are cut for GPUs: how many threads share a row in the kernels that keep it in
// registers (shaders/kept_rows.glsl), and how many rows a thread adds in sums of columns.
#pragma once

#include <algorithm>

#include "backend.h"

namespace rw {

struct RowTeams {
  bool fit = false;     // else the kernels that read rows again
  uint32_t groups = 0;  // threads.x
  uint32_t team = 0;    // constant TEAM: 0 the workgroup, 1 a subgroup, 8 lanes
  uint32_t rounds = 0;  // constant ROUNDS
};

// For `rows` rows of `cols` elements. CPU drivers read rows again: they lie in a cache, registers
// are on the stack.
inline RowTeams row_teams(const DeviceInfo& device, int64_t rows, int64_t cols) {
  if (device.is_cpu || cols == 0 || cols % 8 != 0 || !device.has("subgroup arithmetic") ||
      !device.has("subgroup shuffle"))
    return {};
  constexpr int64_t most_rounds = 4, few_rows = 512;
  const int64_t lanes = device.subgroup_size, words = cols / 8;
  const int64_t threads = (128 + lanes - 1) / lanes * lanes;  // of a workgroup
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  RowTeams t{.fit = true};
  int64_t size = threads;
  if (words <= 16 && lanes % 8 == 0) {
    t.team = 8;
    size = 8;
  } else if (words <= lanes || (words <= most_rounds * lanes && rows >= few_rows)) {
    t.team = 1;
    size = lanes;
  } else if (words > most_rounds * threads) {
    return {};
  }
  const int64_t rounds = divide_up(words, size);
  t.rounds = rounds > 2 ? 4 : static_cast<uint32_t>(rounds);
  t.groups = static_cast<uint32_t>(divide_up(rows, threads / size));
  return t;
}

// How many of `count` rows a thread adds where `threads` threads lie across the columns: `usual`,
// or fewer where that leaves a GPU with too few threads; a divisor of `count` if there is one about
// that size.
inline int64_t column_run(const DeviceInfo& device, int64_t count, int64_t threads, int64_t usual) {
  constexpr int64_t least = 8, threads_of_gpu = 1 << 18;
  if (device.is_cpu || usual <= least) return usual;
  const int64_t run = std::clamp(count * threads / threads_of_gpu, least, usual);
  for (int64_t next = run; next < 2 * run && next <= usual; ++next)
    if (count % next == 0) return next;
  return run;
}

}  // namespace rw
