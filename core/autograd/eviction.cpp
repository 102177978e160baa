#include "core/autograd/eviction.h"

#include <algorithm>
#include <unordered_set>

namespace rw {

namespace {

// Values of one storage: they are dropped together.
struct Candidate {
  std::vector<uint64_t> ids;
  double cost = 0;
  uint64_t bytes = 0, used = 0;
  const Storage* storage = nullptr;
};

constexpr size_t most_ancestors = 64;  // looked at for the cost of one value

// Cost of making a value of `record` again, with what of its ancestors was dropped too.
double cost_of(const Records& records, const Segment& segment, int64_t record) {
  std::vector<int64_t> work = {record};
  std::unordered_set<int64_t> seen = {record};
  double sum = 0;
  for (size_t next = 0; next < work.size() && next < most_ancestors; ++next) {
    const Record& maker = records[work[next]];
    sum += maker.cost.total();
    for (const Edge& edge : maker.inputs)
      if (!segment.has(edge.id) && seen.insert(edge.record).second) work.push_back(edge.record);
  }
  return sum;
}

// Whether nobody else's handle keeps the storage alive: else dropping ours would free nothing.
bool is_ours(const Segment& segment, const Candidate& c) {
  const auto value = [&](uint64_t id) -> const Tensor& { return segment.kept.at(id).value.tensor; };
  return value(c.ids.front()).impl().storage.use_count() == static_cast<long>(c.ids.size()) &&
         std::all_of(c.ids.begin(), c.ids.end(),
                     [&](uint64_t id) { return value(id).pointer().use_count() == 1; });
}

}  // namespace

uint64_t drop_values(const Records& records, Segment& segment, uint64_t now, uint64_t wanted) {
  std::unordered_map<const Storage*, Candidate> all;
  for (const auto& [id, kept] : segment.kept) {
    const auto& storage = kept.value.tensor.impl().storage;
    Candidate& c = all[storage.get()];
    c.storage = storage.get();
    c.ids.push_back(id);
    c.bytes = storage->range().size;
    c.used = std::max(c.used, kept.used);
  }
  std::vector<std::pair<double, Candidate*>> order;
  for (auto& [storage, c] : all) {
    if (!is_ours(segment, c)) continue;
    for (const uint64_t id : c.ids) c.cost += cost_of(records, segment, segment.kept.at(id).record);
    const auto staleness = static_cast<double>(now - c.used + 1);
    order.emplace_back((c.cost + 1) / (static_cast<double>(c.bytes) * staleness), &c);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->storage->id()) <
           std::pair(b.first, b.second->storage->id());
  });
  // A little more than wanted at a time: looking at all values again costs more.
  uint64_t freed = 0, held = 0, dropped = 0;
  for (const auto& [storage, c] : all) held += c.bytes;
  wanted = std::max(wanted, held / 32);
  for (const auto& [score, c] : order) {
    if (freed >= wanted) break;
    freed += c->bytes;
    for (const uint64_t id : c->ids) segment.kept.erase(id);
    ++dropped;
  }
  return dropped;
}

}  // namespace rw
