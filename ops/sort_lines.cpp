// Sorts blocks of 32 by rank, then merges runs, with a binary search in the other run for each
// place. The sort is stable, of any length, and needs neither shared memory nor a barrier inside a
// kernel.
#include "ops/sort_lines.h"

#include "ops/detail.h"

namespace rw {

using namespace detail;

std::pair<Tensor, Tensor> detail::sort_lines(const Tensor& x, bool descending) {
  const uint32_t n = count32(x.numel(), "sort"), count = count32(x.size(1), "sort");
  const auto places = [&] { return empty_on(x, x.shape(), DType::i32); };
  Tensor key = places(), order = places();
  rw::launch("sort_blocks", {in(x), out(key), out(order)},
             kernels::SortParams{.n = n, .count = count, .descending = descending},
             {.threads = {n, 1, 1}});
  if (count <= 32) return {key, order};
  Tensor merged_key = places(), merged_order = places();
  for (uint64_t run = 32; run < count; run *= 2) {
    rw::launch("sort_merge", {in(key), in(order), out(merged_key), out(merged_order)},
               kernels::SortParams{.n = n, .count = count, .run = low(run)},
               {.threads = {n, 1, 1}});
    std::swap(key, merged_key);
    std::swap(order, merged_order);
  }
  return {key, order};
}

}  // namespace rw
