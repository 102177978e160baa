#include "optim/base/placement.h"

#include <algorithm>
#include <unordered_set>

#include "core/base/error.h"
#include "core/memory/device.h"
#include "core/memory/stream.h"
#include "shaders/params.h"

namespace rw {

namespace {

constexpr const char* op = "optimizer";
constexpr int64_t slab_bytes = int64_t{128} << 20;

int64_t round_up(int64_t n) {
  return (n + REWIND_FLAT - 1) / REWIND_FLAT * REWIND_FLAT;
}

void check_parameter(const Tensor& p, const std::string& name) {
  check<AutogradError>(p.is_leaf(), op, "'{}' must be a leaf, got the result of an op", name);
  check<AutogradError>(!p.impl().is_optimized, op,
                       "'{}' belongs to another optimizer; use one with several groups", name);
  // Parameters of an earlier optimizer share its slab, and they alone may leave it.
  const std::shared_ptr<Storage>& storage = p.impl().storage;
  check<AutogradError>(
      storage.use_count() == 1 || storage->op() == op, op,
      "'{}' shares its storage with another tensor, a view of it or a forward pass "
      "still on the tape; make the optimizer before them",
      name);
}

uint64_t streamed_bytes(const ParameterGroup& group) {
  return group.offload ? group.offload->parameter_bytes : 0;
}

void check_groups(const std::vector<ParameterGroup>& groups) {
  if (groups.empty()) return;
  const std::optional<Shard>& shard = groups.front().shard;
  for (const ParameterGroup& group : groups) {
    check(group.shard == shard, op, "all groups must have the same shard");
    check(!group.shard || !group.offload, op,
          "states must be sharded or offloaded, got a group with both");
    check(!group.offload || group.offload->part_bytes > 0, op,
          "parts of offloaded states must have bytes, got 0");
    check(streamed_bytes(group) == streamed_bytes(groups.front()), op,
          "all groups must have as many bytes of offloaded parameters on the device, got {} and {}",
          streamed_bytes(groups.front()), streamed_bytes(group));
  }
  const auto on_host = [](const ParameterGroup& group) {
    return group.offload && group.offload->updates_on_host;
  };
  check(std::ranges::all_of(groups,
                            [&](const ParameterGroup& group) {
                              return !group.offload ||
                                     on_host(group) == std::ranges::any_of(groups, on_host);
                            }),
        op, "all groups that are offloaded must be updated in one place");
  check(!shard || (shard->rank >= 0 && shard->rank < shard->ranks), op,
        "a shard must be one of its ranks, got {} of {}", shard ? shard->rank : 0,
        shard ? shard->ranks : 0);
}

class Placer {
 public:
  Placer(const std::vector<ParameterGroup>& groups, const StateRule& rule, bool is_separate)
      : groups_(groups),
        rule_(rule),
        states_(rule.state_names().size()),
        is_separate_(is_separate || (!groups.empty() && streamed_bytes(groups.front()) > 0)) {
    check_groups(groups);
    if (!groups.empty() && groups.front().shard) shard_ = *groups.front().shard;
    placed_.keeps_parts = shard_.gathered_bytes > 0;
    if (!groups.empty()) placed_.streamed_bytes = streamed_bytes(groups.front());
  }

  Placement place() {
    collect();
    for (size_t i = 0; i < placed_.slots.size(); ++i) {
      Placement::Slot& slot = placed_.slots[i];
      Placement::Slab& slab = slab_for(i);
      slot.slab = placed_.slabs.size() - 1;
      slot.offset = take(slot.parameter.numel(), slab.elements);
      if (!slab.is_divided) slab.own = {0, slab.elements};
      for (size_t s = 0; s < states_; ++s)
        slot.states.push_back(state_of(slot, s, slab.state_elements[s]));
      add_runs(i);
    }
    return std::move(placed_);
  }

 private:
  using Slot = Placement::Slot;
  using Run = Placement::Run;

  static int64_t take(int64_t count, int64_t& end) {
    return std::exchange(end, end + round_up(count));
  }
  int64_t unit_of(const Slot& slot) const { return is_separate_ ? 0 : rule_.unit(slot.group); }

  void collect() {
    std::unordered_set<const TensorImpl*> seen;
    std::vector<Ownership::Parameter> line;
    bool is_empty = true;
    for (size_t g = 0; g < groups_.size(); ++g)
      for (size_t i = 0; i < groups_[g].parameters.size(); ++i) {
        const Tensor& p = groups_[g].parameters[i];
        is_empty = false;
        if (!p.requires_grad()) continue;
        const std::string name = p.impl().name.empty() ? fmt::format("{}.{}", g, i) : p.impl().name;
        check<AutogradError>(seen.insert(&p.impl()).second, op, "'{}' appears twice", name);
        check_parameter(p, name);
        placed_.slots.push_back({.parameter = p, .group = g, .name = name});
        line.push_back({p.numel(), unit_of(placed_.slots.back()) > 0});
      }
    check(!placed_.slots.empty(), op,
          "at least one parameter that requires a gradient is needed, got {}",
          is_empty ? "no parameters" : "only ones that do not");
    placed_.ownership.emplace(line, shard_.ranks);
    for (size_t i = 0; i < placed_.slots.size(); ++i) {
      placed_.slots[i].own = placed_.ownership->part(i, shard_.rank);
      placed_.slots[i].is_here = placed_.ownership->has(i, shard_.rank);
    }
  }

  // The last slab, or a new one.
  Placement::Slab& slab_for(size_t index) {
    const Slot& slot = placed_.slots[index];
    const DType dtype = slot.parameter.dtype();
    Placement::Slab fresh = {
        .dtype = dtype,
        .where = groups_[slot.group].offload ? MemoryPlace::host : MemoryPlace::device,
        .state_elements = std::vector<int64_t>(states_)};
    int64_t most = is_separate_ ? 0 : slab_bytes / static_cast<int64_t>(sizeof(float));
    if (placed_.keeps_parts) {
      most = static_cast<int64_t>(shard_.gathered_bytes / size_of(dtype));
      fresh.owner = placed_.ownership->owner(index);
      fresh.is_divided = placed_.ownership->is_divided(index);
      fresh.is_kept = fresh.is_divided ? slot.own.size > 0 : fresh.owner == shard_.rank;
      if (fresh.is_divided) fresh.own = {slot.own.offset, round_up(slot.own.size)};
    }
    std::vector<Placement::Slab>& slabs = placed_.slabs;
    const auto joins = [&](const Placement::Slab& last) {
      return last.elements + round_up(slot.parameter.numel()) <= most && last.dtype == dtype &&
             last.where == fresh.where && last.owner == fresh.owner && !last.is_divided &&
             !fresh.is_divided;
    };
    if (slabs.empty() || !joins(slabs.back())) slabs.push_back(std::move(fresh));
    return slabs.back();
  }

  // How much of a state is on this rank: one element for each own element, or one for as many as
  // are updated together.
  std::optional<Placement::State> state_of(const Slot& slot, size_t state, int64_t& end) const {
    if (!slot.is_here) return std::nullopt;
    const std::optional<Shape> shape = rule_.state_shape(state, slot.parameter, slot.group);
    if (!shape) return std::nullopt;
    Placement::State here = {*shape};
    if (const int64_t all = slot.parameter.numel(); slot.own.size < all) {
      const int64_t each = shape->numel() == all ? 1 : unit_of(slot);
      here.first = slot.own.offset / each;
      here.shape = {(slot.own.end() + each - 1) / each - here.first};
    }
    here.offset = take(here.shape.numel(), end);
    return here;
  }

  void add_runs(size_t index) {
    const Slot& slot = placed_.slots[index];
    Run run{slot.group, slot.slab, {slot.offset, round_up(slot.parameter.numel())}, {}, index, 1};
    for (const std::optional<Placement::State>& state : slot.states)
      run.states.push_back(state ? ElementRange{state->offset, round_up(state->shape.numel())}
                                 : ElementRange{});
    run.is_elsewhere = !slot.is_here;
    if (const std::optional<Offload>& offload = groups_[slot.group].offload)
      add_offloaded(std::move(run), *offload);
    else if (placed_.ownership->is_divided(index) && !run.is_elsewhere)
      add_divided(run);
    else
      add(std::move(run), joins(run));
  }

  // Adds it to the last run, or begins a run.
  void add(Run run, bool joins_last) {
    if (!joins_last) return placed_.runs.push_back(std::move(run));
    Run& last = placed_.runs.back();
    last.elements.size += run.elements.size;
    for (size_t s = 0; s < run.states.size(); ++s) last.states[s].size += run.states[s].size;
    ++last.slots;
  }

  // Whether the last run may continue with the next parameter: kernels find its states at the same
  // offsets as the parameter.
  bool joins(const Run& next) const {
    if (placed_.runs.empty()) return false;
    const Run& run = placed_.runs.back();
    if (run.group != next.group || run.slab != next.slab ||
        run.elements.offset != placed_.slots[run.first_slot].offset ||
        run.is_elsewhere != next.is_elsewhere)
      return false;
    for (size_t s = 0; s < run.states.size(); ++s)
      if ((run.states[s].size > 0) != (next.states[s].size > 0)) return false;
    return true;
  }

  // The bytes of a run that come to the device for its update.
  uint64_t staged_bytes(const Run& run) const {
    const bool has_master = placed_.slots[run.first_slot].parameter.dtype() != DType::f32;
    int64_t sum = has_master ? run.elements.size * int64_t{sizeof(float)} : 0;
    for (size_t s = 0; s < run.states.size(); ++s)
      sum += run.states[s].size * static_cast<int64_t>(size_of(rule_.state_dtype(s)));
    return static_cast<uint64_t>(sum);
  }

  // Limits the bytes at a time. A run that is larger and cannot be cut is not staged. On the host
  // parameters are not cut, since nothing but their gradients is there a second time.
  void add_offloaded(Run run, const Offload& how) {
    const uint64_t bytes = staged_bytes(run), most_bytes = how.part_bytes;
    run.is_on_host = how.updates_on_host;
    run.is_staged = !run.is_on_host && bytes <= most_bytes;
    const bool joins_last = joins(run) && placed_.runs.back().is_staged == run.is_staged &&
                            staged_bytes(placed_.runs.back()) + bytes <= most_bytes;
    if (run.is_on_host || run.is_staged || unit_of(placed_.slots[run.first_slot]) != 1)
      return add(std::move(run), joins_last);
    const auto each = static_cast<int64_t>(bytes) / run.elements.size;
    constexpr int64_t unit = Placement::part_unit;
    const int64_t part =
        std::max<int64_t>(1, static_cast<int64_t>(most_bytes) / each / unit) * unit;
    for (int64_t at = 0; at < run.elements.size; at += part) {
      Run& own = placed_.runs.emplace_back(run);
      own.is_staged = true;
      const auto cut = [&](ElementRange& range) {
        if (range.size > 0) range = {range.offset + at, std::min(part, range.size - at)};
      };
      cut(own.elements);
      for (ElementRange& range : own.states) cut(range);
    }
  }

  // The own elements, and those before and behind them that other ranks update.
  void add_divided(const Run& whole) {
    const ElementRange& own = placed_.slots[whole.first_slot].own;
    const auto add_part = [&](int64_t first, int64_t end, bool is_elsewhere) {
      if (first == end) return;
      Run& run = placed_.runs.emplace_back(whole);
      run.elements = {whole.elements.offset + first, end - first};
      run.is_elsewhere = is_elsewhere;
      if (is_elsewhere) run.states.assign(run.states.size(), {});
    };
    add_part(0, own.offset, true);
    add_part(own.offset, round_up(own.end()), false);
    add_part(round_up(own.end()), whole.elements.size, true);
  }

  const std::vector<ParameterGroup>& groups_;
  const StateRule& rule_;
  const size_t states_;  // how many
  const bool is_separate_;
  Shard shard_;  // of all groups; of one rank where there is none
  Placement placed_;
};

}  // namespace

Placement Placement::of(const std::vector<ParameterGroup>& groups, const StateRule& rule,
                        bool is_separate) {
  return Placer(groups, rule, is_separate).place();
}

std::vector<ParameterGroup> placed_within(uint64_t bytes, std::vector<ParameterGroup> groups,
                                          const StateRule& rule) {
  const auto is_placed = [](const ParameterGroup& g) { return g.offload || g.shard; };
  if (bytes == 0 || std::ranges::any_of(groups, is_placed)) return groups;
  const Placement placement = Placement::of(groups, rule);
  if (placement.slots.empty()) return groups;
  const Device& device = placement.slots.front().parameter.device();
  if (!device.info().host_bandwidth.gains()) return groups;
  uint64_t gradients = 0, states = 0;
  for (const Placement::Slab& slab : placement.slabs) {
    const uint64_t of_floats = static_cast<uint64_t>(slab.elements) * sizeof(float);
    gradients += of_floats;
    if (slab.dtype != DType::f32) states += of_floats;  // masters
    for (size_t i = 0; i < slab.state_elements.size(); ++i)
      states += static_cast<uint64_t>(slab.state_elements[i]) * size_of(rule.state_dtype(i));
  }
  // A quarter is for activations, which can be made again.
  const uint64_t most = bytes - bytes / 4, live = device.live() + gradients;
  Offload how;
  how.part_bytes = std::min(how.part_bytes, std::max<uint64_t>(bytes / 32, 1 << 20));
  if (live + states <= most) return groups;
  if (live <= most) return offload_states(std::move(groups), how);
  how.parameter_bytes = std::min(usual_streamed_bytes, bytes / 8);
  return offload_parameters(std::move(groups), how);
}

}  // namespace rw
