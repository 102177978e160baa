// Sorts blocks of 32 by rank, then merges runs, with a binary search in the other run for each
// place. The sort is stable, of any length, and needs neither shared memory nor a barrier inside a
// kernel.
#include "ops/sort_lines.h"

#include "ops/detail.h"

namespace rw {

using namespace detail;

Sorted detail::sort_lines(const Tensor& x, bool descending) {
  const uint32_t n = count32(x.numel(), "sort"), count = count32(x.size(1), "sort");
  const auto new_pair = [&] {
    return Sorted{empty_on(x, x.shape(), DType::i32), empty_on(x, x.shape(), DType::i32)};
  };
  Sorted sorted = new_pair();
  rw::launch("sort_blocks", {in(x), out(sorted.key), out(sorted.order)},
             kernels::SortParams{.n = n, .count = count, .descending = descending},
             {.threads = {n, 1, 1}});
  if (count <= 32) return sorted;
  Sorted merged = new_pair();
  for (uint64_t run = 32; run < count; run *= 2) {
    rw::launch("sort_merge", {in(sorted.key), in(sorted.order), out(merged.key), out(merged.order)},
               kernels::SortParams{.n = n, .count = count, .run = low(run)},
               {.threads = {n, 1, 1}});
    std::swap(sorted, merged);
  }
  return sorted;
}

}  // namespace rw
