#include "core/autograd/eviction.h"

#include <algorithm>

#include "core/memory/device.h"

namespace rw {

namespace {

// The values of one storage, which are dropped together.
struct Candidate {
  std::vector<ValueKey> values;
  double cost = 0;
  uint64_t bytes = 0, used = 0;
  Storage* storage = nullptr;
  bool goes_to_host = false;

  // Chooses the host where that is cheaper than recomputing the values.
  void choose_host() {
    const double seconds = storage->device().info().host_bandwidth.seconds_there_and_back();
    const double there_and_back = seconds * OpCost::flops_per_second * static_cast<double>(bytes);
    goes_to_host = there_and_back < cost;
    if (goes_to_host) cost = there_and_back;
  }
};

constexpr size_t most_ancestors = 64;  // that the cost of one value counts

// Returns the cost of making a value of `record` again, along with those of its ancestors that were
// dropped too.
double cost_of(const Records& records, const Segment& segment, int64_t record) {
  std::vector<int64_t> work = {record};
  std::unordered_set<int64_t> seen = {record};
  double sum = 0;
  for (size_t next = 0; next < work.size() && next < most_ancestors; ++next) {
    const Record& maker = records[work[next]];
    sum += maker.cost.total();
    for (const Edge& edge : maker.inputs)
      if (!segment.has(edge.key()) && seen.insert(edge.record).second) work.push_back(edge.record);
  }
  return sum;
}

}  // namespace

std::unordered_set<const Storage*> own_storages(const Segment& segment) {
  std::unordered_map<const Storage*, long> handles;
  std::unordered_set<const Storage*> own;
  for (const auto& [key, kept] : segment.kept) {
    const Storage* const storage = kept.value.tensor.impl().storage.get();
    ++handles[storage];
    own.insert(storage);
  }
  for (const auto& [key, kept] : segment.kept) {
    const auto& storage = kept.value.tensor.impl().storage;
    const bool is_shared = storage.use_count() != handles.at(storage.get()) ||
                           kept.value.tensor.pointer().use_count() != 1;
    if (is_shared || kept.is_only_copy) own.erase(storage.get());
  }
  return own;
}

uint64_t drop_values(const Records& records, Segment& segment, uint64_t now, uint64_t wanted) {
  std::unordered_map<const Storage*, Candidate> all;
  for (const auto& [key, kept] : segment.kept) {
    const auto& storage = kept.value.tensor.impl().storage;
    if (storage->is_swapped_out()) continue;
    Candidate& c = all[storage.get()];
    c.storage = storage.get();
    c.values.push_back(key);
    c.bytes = storage->range().size;
    c.used = std::max(c.used, kept.used);
  }
  const std::unordered_set<const Storage*> own = own_storages(segment);
  std::vector<std::pair<double, Candidate*>> order;
  for (auto& [storage, c] : all) {
    if (!own.contains(storage)) continue;
    for (const ValueKey& key : c.values)
      c.cost += cost_of(records, segment, segment.kept.at(key).record);
    c.choose_host();
    const auto staleness = static_cast<double>(now - c.used + 1);
    order.emplace_back((c.cost + 1) / (static_cast<double>(c.bytes) * staleness), &c);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->storage->id()) <
           std::pair(b.first, b.second->storage->id());
  });
  // Drops a little more than is wanted at a time, since looking at all values again costs more.
  uint64_t freed = 0, held = 0, dropped = 0;
  for (const auto& [storage, c] : all) held += c.bytes;
  wanted = std::max(wanted, held / 32);
  for (const auto& [score, c] : order) {
    if (freed >= wanted) break;
    freed += c->bytes;
    ++dropped;
    if (c->goes_to_host && c->storage->device().to_host(*c->storage)) continue;
    for (const ValueKey& key : c->values) segment.kept.erase(key);
  }
  return dropped;
}

}  // namespace rw
