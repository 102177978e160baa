#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

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

void flat_index(const Call& call) {
  const auto p = call.params<FlatIndexParams>();
  const bool is_shared = call.variant(0) == 1;
  const Elements index = call.in(0);
  Elements y = call.out(1);
  for (uint64_t at = 0; at < p.n; ++at) {
    const uint64_t i = at % p.inner, k = at / p.inner % p.count, o = at / p.inner / p.count;
    const int64_t row = index.geti(is_shared ? k : at);
    const bool is_inside = row >= 0 && row < int64_t{p.rows};
    y.seti(at, is_inside ? static_cast<int32_t>((o * p.rows + row) * p.inner + i) : -1);
  }
}

namespace {

// Unsigned numbers in the order of the values.
uint32_t sort_key(const Elements& x, uint64_t i, bool descending) {
  uint32_t key = static_cast<uint32_t>(x.geti(i)) ^ 0x80000000u;
  if (is_float(x.dtype())) {
    const float value = x.get(i);
    const uint32_t bits = value == 0 ? 0 : std::bit_cast<uint32_t>(value);
    key = std::isnan(value)                   ? UINT32_MAX
          : std::signbit(value) && value != 0 ? ~bits
                                              : bits | 0x80000000u;
  }
  return descending ? ~key : key;
}

}  // namespace

void sort_blocks(const Call& call) {
  const auto p = call.params<SortBlocksParams>();
  const Elements x = call.in(0);
  Elements key = call.out(1), order = call.out(2);
  constexpr uint32_t block = 32;
  for (uint64_t line = 0; line < p.n; line += p.count)
    for (uint32_t first = 0; first < p.count; first += block) {
      std::vector<std::pair<uint32_t, uint32_t>> places;  // keys with where they are
      for (uint32_t place = first; place < std::min(first + block, p.count); ++place)
        places.emplace_back(sort_key(x, line + place, p.descending == 1), place);
      std::sort(places.begin(), places.end());
      for (uint32_t i = 0; i < places.size(); ++i) {
        key.seti(line + first + i, static_cast<int32_t>(places[i].first));
        order.seti(line + first + i, static_cast<int32_t>(places[i].second));
      }
    }
}

void sort_merge(const Call& call) {
  const auto p = call.params<SortMergeParams>();
  const Elements key = call.in(0), order = call.in(1);
  Elements merged = call.out(2), merged_order = call.out(3);
  const auto key_at = [&](uint64_t i) { return static_cast<uint32_t>(key.geti(i)); };
  for (uint64_t line = 0; line < p.n; line += p.count)
    for (uint64_t first = 0; first < p.count; first += 2 * uint64_t{p.run}) {
      const uint64_t middle = line + std::min<uint64_t>(first + p.run, p.count);
      const uint64_t last = line + std::min<uint64_t>(first + 2 * uint64_t{p.run}, p.count);
      uint64_t a = line + first, b = middle;
      for (uint64_t to = a; to < last; ++to) {
        const bool takes_a = b == last || (a < middle && key_at(a) <= key_at(b));
        const uint64_t from = takes_a ? a++ : b++;
        merged.seti(to, key.geti(from));
        merged_order.seti(to, order.geti(from));
      }
    }
}

void sorted_links(const Call& call) {
  const auto p = call.params<SortedLinksParams>();
  const Elements key = call.in(0), order = call.in(1);
  Elements next = call.out(2), first = call.out(3);
  for (uint64_t i = 0; i < p.n; ++i) {
    const auto at = static_cast<uint64_t>(order.geti(i));
    const bool is_last = i + 1 == p.n || key.geti(i + 1) != key.geti(i);
    next.seti(at, is_last ? -1 : order.geti(i + 1));
    first.seti(at, i == 0 || key.geti(i - 1) != key.geti(i));
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
  enum : uint32_t { add, replace, unique };
  const uint32_t mode = call.variant(0);
  check<ValueError>(mode <= unique, call.kernel(), "mode must be 0 to {}, got {}", uint32_t{unique},
                    mode);
  const auto value = [](const Elements& e, uint64_t i) {
    return is_float(e.dtype()) ? double{e.get(i)} : static_cast<double>(e.geti(i));
  };
  for (uint64_t i = 0; i < p.n; ++i) {
    const int32_t row = index.geti(i);
    if (row < 0 || static_cast<uint32_t>(row) >= p.rows) continue;
    if (mode == replace && next.geti(i) >= 0) continue;
    if (mode == add && first.geti(i) == 0) continue;
    for (uint64_t c = 0; c < p.width; ++c) {
      const uint64_t at = static_cast<uint64_t>(row) * p.width + c;
      double total = mode == add ? value(y, at) : 0;
      for (int64_t j = static_cast<int64_t>(i); j >= 0; j = mode == add ? next.geti(j) : -1)
        total += value(dy, static_cast<uint64_t>(j) * p.width + c);
      if (is_float(y.dtype()))
        y.set(at, static_cast<float>(total));
      else
        y.seti(at, static_cast<int32_t>(static_cast<int64_t>(total)));
    }
  }
}

}  // namespace rw::cpu
