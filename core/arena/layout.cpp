// Lifetimes fall into components that are packed one after the other (core/arena/packer.h).
#include "core/arena/layout.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>

#include "core/arena/address_line.h"
#include "core/arena/packer.h"
#include "core/base/error.h"

namespace rw {

namespace {

struct Event {
  uint32_t time;
  bool begins;  // ends come first: lifetimes are half open
  uint32_t id;
  auto operator<=>(const Event&) const = default;
};

std::vector<Event> sorted_events(std::span<const Lifetime> lifetimes) {
  std::vector<Event> events;
  for (uint32_t i = 0; i < lifetimes.size(); ++i) {
    events.push_back({lifetimes[i].begin, true, i});
    events.push_back({lifetimes[i].end, false, i});
  }
  std::ranges::sort(events);
  return events;
}

// Components with the largest lower bounds come first.
std::vector<Component> split(std::span<const Lifetime> lifetimes) {
  std::vector<Component> components;
  std::vector<uint32_t> place(lifetimes.size());  // in its component
  uint32_t alive = 0;
  bool growing = false;  // something began after the last clique
  for (const auto& [time, begins, id] : sorted_events(lifetimes)) {
    if (begins) {
      if (alive++ == 0) components.emplace_back();
      Component& c = components.back();
      place[id] = static_cast<uint32_t>(c.items.size());
      c.items.push_back({lifetimes[id].size, c.cliques, 0});
      c.ids.push_back(id);
      growing = true;
    } else {
      Component& c = components.back();
      if (growing) ++c.cliques;
      growing = false;
      c.items[place[id]].end = c.cliques;
      --alive;
    }
  }
  for (Component& c : components) c.lower = lower_bound(c.items);
  std::ranges::stable_sort(components, std::greater<>(), &Component::lower);
  return components;
}

void check_input(std::span<const Lifetime> lifetimes, std::span<const uint64_t> holes,
                 uint64_t max_region, uint64_t& total) {
  for (const auto& [size, begin, end] : lifetimes) {
    check(size > 0 && begin < end, "lay_out",
          "a lifetime must have bytes and end after it begins, got {} bytes alive in [{}, {})",
          size, begin, end);
    check(size <= max_region, "lay_out",
          "a lifetime must fit in a region of {} bytes, got {} bytes", max_region, size);
    check(size <= max_total - total, "lay_out", "sizes must add up to less than {} bytes",
          max_total);
    total += size;
  }
  uint64_t space = 0;
  for (const uint64_t hole : holes) {
    check(std::min(hole, total) <= max_total - space, "lay_out",
          "holes must have less than {} bytes in all", max_total);
    space += std::min(hole, total);
  }
}

// The input in units of 2^shift bytes, the smallest with which addresses have 30 bits: bytes below
// 256 MiB in all, the 256 bytes of arenas below 64 GiB. Larger units round up, which leaves that
// much unused behind each lifetime.
struct Units {
  int shift = 0;
  std::vector<Lifetime> lifetimes;
  std::vector<uint64_t> holes;
  uint64_t max_region, total = 0;

  Units(std::span<const Lifetime> given, std::span<const uint64_t> given_holes, uint64_t region,
        uint64_t bytes)
      : lifetimes(given.begin(), given.end()), max_region(region) {
    uint64_t span = 4 * bytes;  // an item may leave less than its size unused before it
    for (const uint64_t hole : given_holes) span += std::min(hole, bytes);
    while (span >> shift >= most_units) ++shift;
    const uint64_t unit = uint64_t{1} << shift;
    max_region >>= shift;
    bool fills = false;  // a region to its last bytes, which are no unit: it must not go to a hole
    for (Lifetime& life : lifetimes) {
      const uint64_t wanted = (life.size + unit - 1) >> shift;
      fills |= wanted > max_region;
      life.size = std::min(wanted, max_region);
      total += life.size;
    }
    for (const uint64_t hole : given_holes) holes.push_back(fills ? 0 : hole >> shift);
  }
};

}  // namespace

uint64_t Layout::height() const {
  return std::accumulate(regions.begin(), regions.end(), uint64_t{0});
}

uint64_t lower_bound(std::span<const Lifetime> lifetimes) {
  uint64_t live = 0, most = 0;
  for (const auto& [time, begins, id] : sorted_events(lifetimes)) {
    live += begins ? lifetimes[id].size : -lifetimes[id].size;
    most = std::max(most, live);
  }
  return most;
}

namespace {

// The layouts that were found last. A run has those of its forecast.
class KnownLayouts {
 public:
  std::optional<Layout> find(std::span<const Lifetime> lifetimes, std::span<const uint64_t> holes,
                             uint64_t max_region) {
    const auto is_equal = [](const Lifetime& a, const Lifetime& b) {
      return a.size == b.size && a.begin == b.begin && a.end == b.end;
    };
    const std::lock_guard lock(mutex_);
    for (const Entry& e : entries_)
      if (e.max_region == max_region && std::ranges::equal(e.holes, holes) &&
          std::ranges::equal(e.lifetimes, lifetimes, is_equal))
        return e.layout;
    return std::nullopt;
  }
  void add(std::span<const Lifetime> lifetimes, std::span<const uint64_t> holes,
           uint64_t max_region, const Layout& layout) {
    const std::lock_guard lock(mutex_);
    if (entries_.size() == most) entries_.pop_front();
    entries_.push_back(
        {{lifetimes.begin(), lifetimes.end()}, {holes.begin(), holes.end()}, max_region, layout});
  }

 private:
  static constexpr size_t most = 8;
  struct Entry {
    std::vector<Lifetime> lifetimes;
    std::vector<uint64_t> holes;
    uint64_t max_region;
    Layout layout;
  };
  std::mutex mutex_;
  std::deque<Entry> entries_;
};

Layout find_layout(std::span<const Lifetime> lifetimes, std::span<const uint64_t> holes,
                   uint64_t max_region) {
  uint64_t bytes = 0;
  check_input(lifetimes, holes, max_region, bytes);
  const Units units(lifetimes, holes, max_region, bytes);
  const AddressLine line(units.holes, units.max_region, std::max(units.total, uint64_t{1}));

  uint64_t work = std::min<uint64_t>(10'000'000 + 12'000 * lifetimes.size(), 500'000'000);
  uint64_t reach = line.holes_end();  // bytes in holes cost nothing
  Layout plan;
  plan.places.resize(lifetimes.size());
  for (const Component& component : split(units.lifetimes)) {
    const uint64_t target = std::max(reach, component.lower);
    const Packing packing = pack(component, line, target, work);
    reach = std::max(reach, packing.reach);
    for (size_t i = 0; i < component.ids.size(); ++i) {
      const auto [space, offset] = line.place(packing.addresses[i]);
      plan.places[component.ids[i]] = {space, offset << units.shift};
    }
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const auto [space, offset] = plan.places[i];
    if (space < holes.size()) continue;
    const size_t region = space - holes.size();
    if (region >= plan.regions.size()) plan.regions.resize(region + 1);
    plan.regions[region] = std::max(plan.regions[region], offset + lifetimes[i].size);
  }
  return plan;
}

}  // namespace

Layout lay_out(std::span<const Lifetime> lifetimes, std::span<const uint64_t> holes,
               uint64_t max_region) {
  static KnownLayouts known;
  if (std::optional<Layout> layout = known.find(lifetimes, holes, max_region))
    return std::move(*layout);
  Layout layout = find_layout(lifetimes, holes, max_region);
  known.add(lifetimes, holes, max_region, layout);
  return layout;
}

}  // namespace rw
