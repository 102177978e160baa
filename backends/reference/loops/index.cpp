#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

void gather(const Call& call) {
  const auto p = call.params<RowsParams>();
  const Elements table = call.in(0), index = call.in(1);
  Elements y = call.out(2);
  for (uint64_t i = 0; i < p.n; ++i) {
    const int32_t row = index.geti(i);
    const bool valid = row >= 0 && static_cast<uint32_t>(row) < p.rows;
    for (uint64_t c = 0; c < p.width; ++c) {
      const uint64_t from = static_cast<uint64_t>(row) * p.width + c, to = i * p.width + c;
      if (is_float(table.dtype()))
        y.set(to, valid ? table.get(from) : std::numeric_limits<Real>::quiet_NaN());
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

// Maps values to unsigned numbers in the same order.
uint32_t sort_key(const Elements& x, uint64_t i, bool descending) {
  uint32_t key = static_cast<uint32_t>(x.geti(i)) ^ 0x80000000u;
  if (is_float(x.dtype())) {
    const auto value = static_cast<float>(x.get(i));
    const uint32_t bits = value == 0 ? 0 : std::bit_cast<uint32_t>(value);
    key = std::isnan(value)                   ? UINT32_MAX
          : std::signbit(value) && value != 0 ? ~bits
                                              : bits | 0x80000000u;
  }
  return descending ? ~key : key;
}

}  // namespace

void sort_blocks(const Call& call) {
  const auto p = call.params<SortParams>();
  const Elements x = call.in(0);
  Elements key = call.out(1), order = call.out(2);
  constexpr uint32_t block = 32;
  for (uint64_t line = 0; line < p.n; line += p.count)
    for (uint32_t first = 0; first < p.count; first += block) {
      std::vector<std::pair<uint32_t, uint32_t>> places;  // keys and their positions
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
  const auto p = call.params<SortParams>();
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

void sorted_lasts(const Call& call) {
  const auto p = call.params<SortParams>();
  const Elements key = call.in(0), order = call.in(1);
  Elements last = call.out(2);
  for (uint64_t i = 0; i < p.n; ++i)
    last.seti(static_cast<uint64_t>(order.geti(i)), i + 1 == p.n || key.geti(i + 1) != key.geti(i));
}

namespace {

double value_at(const Elements& e, uint64_t i) {
  return is_float(e.dtype()) ? double{e.get(i)} : static_cast<double>(e.geti(i));
}

void set_value(Elements& e, uint64_t i, double value) {
  if (is_float(e.dtype()))
    e.set(i, static_cast<Real>(value));
  else
    e.seti(i, static_cast<int32_t>(static_cast<int64_t>(value)));
}

}  // namespace

void scatter_add(const Call& call) {
  const auto p = call.params<RowsParams>();
  const bool in_order = call.variant(0) == 1;
  const Elements x = call.in(0), key = call.in(1), order = call.in(2);
  Elements y = call.inout(3), open = call.out(4), open_key = call.out(5);
  constexpr auto no_key = static_cast<int32_t>(SCATTER_NO_KEY);
  for (uint64_t begin = 0; begin < p.n; begin += SCATTER_CHUNK) {
    const uint64_t end = std::min<uint64_t>(begin + SCATTER_CHUNK, p.n);
    const uint64_t head = begin / SCATTER_CHUNK * 2, tail = head + 1;
    open_key.seti(head, no_key);
    open_key.seti(tail, no_key);
    // Visits the runs of equal keys.
    for (uint64_t first = begin, next; first < end; first = next) {
      for (next = first + 1; next < end && key.geti(next) == key.geti(first);) ++next;
      const bool began = first == begin && first > 0 && key.geti(first - 1) == key.geti(first);
      const bool goes_on = next == end && next < p.n && key.geti(next) == key.geti(first);
      if (began) open_key.seti(head, key.geti(first));
      if (goes_on) open_key.seti(tail, key.geti(first));
      const uint32_t row = static_cast<uint32_t>(key.geti(first)) ^ p.flip;
      if (row >= p.rows) continue;
      for (uint64_t c = 0; c < p.width; ++c) {
        double total = 0;
        for (uint64_t i = first; i < next; ++i)
          total += value_at(x, (in_order ? i : static_cast<uint64_t>(order.geti(i))) * p.width + c);
        if (began) set_value(open, head * p.width + c, total);
        if (goes_on) set_value(open, tail * p.width + c, began ? 0 : total);
        if (began || goes_on) continue;
        const uint64_t at = uint64_t{row} * p.width + c;
        set_value(y, at, value_at(y, at) + total);
      }
    }
  }
}

void scatter_put(const Call& call) {
  const auto p = call.params<RowsParams>();
  const bool is_unique = call.variant(0) == 1;
  const Elements dy = call.in(0), index = call.in(1), last = call.in(2);
  Elements y = call.inout(3);
  for (uint64_t i = 0; i < p.n; ++i) {
    const int32_t row = index.geti(i);
    if (row < 0 || static_cast<uint32_t>(row) >= p.rows) continue;
    if (!is_unique && last.geti(i) == 0) continue;
    for (uint64_t c = 0; c < p.width; ++c)
      set_value(y, static_cast<uint64_t>(row) * p.width + c, value_at(dy, i * p.width + c));
  }
}

}  // namespace rw::reference
