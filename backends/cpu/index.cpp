#include <limits>
#include <unordered_map>

#include "rewind/backends/cpu/kernels.h"

namespace rw::cpu {

using namespace kernels;

void gather(const Call& call) {
  const auto p = call.params<GatherParams>();
  const Elements table = call.in(0), index = call.in(1);
  Elements y = call.out(2);
  for (uint64_t i = 0; i < p.n; ++i) {
    const int32_t row = index.geti(i);
    const bool valid = row >= 0 && static_cast<uint32_t>(row) < p.rows;
    for (uint64_t c = 0; c < p.width; ++c) {
      const uint64_t from = static_cast<uint64_t>(row) * p.width + c, to = i * p.width + c;
      if (is_float(table.dtype()))
        y.set(to, valid ? table.get(from) : std::numeric_limits<float>::quiet_NaN());
      else
        y.seti(to, valid ? table.geti(from) : -1);
    }
  }
}

void index_links(const Call& call) {
  const auto p = call.params<IndexLinksParams>();
  const Elements index = call.in(0);
  Elements next = call.out(1), first = call.out(2);
  std::unordered_map<int32_t, uint32_t> last;  // index value -> where it was seen last
  for (uint32_t i = 0; i < p.n; ++i) {
    const auto [seen, is_first] = last.try_emplace(index.geti(i), i);
    if (!is_first) next.seti(seen->second, static_cast<int32_t>(i));
    next.seti(i, -1);
    first.seti(i, is_first);
    seen->second = i;
  }
}

void scatter_add(const Call& call) {
  const auto p = call.params<ScatterAddParams>();
  const Elements dy = call.in(0), index = call.in(1), next = call.in(2), first = call.in(3);
  Elements y = call.inout(4);
  for (uint64_t i = 0; i < p.n; ++i) {
    const int32_t row = index.geti(i);
    if (first.geti(i) == 0 || row < 0 || static_cast<uint32_t>(row) >= p.rows) continue;
    for (uint64_t c = 0; c < p.width; ++c) {
      const uint64_t at = static_cast<uint64_t>(row) * p.width + c;
      double total = y.get(at);
      for (int64_t j = static_cast<int64_t>(i); j >= 0; j = next.geti(j))
        total += dy.get(j * p.width + c);
      y.set(at, static_cast<float>(total));
    }
  }
}

}  // namespace rw::cpu
