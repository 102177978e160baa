#include "optim/base/parameters.h"

#include <algorithm>
#include <unordered_set>

#include "ops/ops.h"
#include "shaders/params.h"

namespace rw {

namespace {

// Marks the slabs of optimizers: the op that allocated them.
constexpr const char* owner = "optimizer";
constexpr int64_t slab_bytes = int64_t{128} << 20;

int64_t round_up(int64_t n) {
  return (n + REWIND_FLAT - 1) / REWIND_FLAT * REWIND_FLAT;
}

void check_parameter(const Tensor& p, const std::string& name) {
  check<AutogradError>(p.is_leaf(), owner, "'{}' must be a leaf, got the result of an op", name);
  check<AutogradError>(!p.impl().is_optimized, owner,
                       "'{}' belongs to another optimizer; use one with several groups", name);
  // The slab of an earlier optimizer is shared by its parameters, and only they are to leave it.
  const std::shared_ptr<Storage>& storage = p.impl().storage;
  check<AutogradError>(
      storage.use_count() == 1 || storage->op() == owner, owner,
      "'{}' shares its storage with another tensor, a view of it or a forward pass "
      "still on the tape; make the optimizer before them",
      name);
}

void check_shards(const std::vector<ParameterGroup>& groups) {
  if (groups.empty()) return;
  const std::optional<Shard>& shard = groups.front().shard;
  for (const ParameterGroup& group : groups) {
    check(group.shard == shard, owner, "all groups must have the same shard");
    check(!group.shard || !group.offload, owner,
          "states must be sharded or offloaded, got a group with both");
  }
  check(!shard || (shard->rank >= 0 && shard->rank < shard->ranks), owner,
        "a shard must be one of its ranks, got {} of {}", shard ? shard->rank : 0,
        shard ? shard->ranks : 0);
}

size_t count_parameters(const std::vector<ParameterGroup>& groups) {
  size_t count = 0;
  for (const ParameterGroup& group : groups) count += group.parameters.size();
  return count;
}

Tensor filled(int64_t size, float value, Device& device, Purpose purpose, DType dtype = DType::f32,
              MemoryPlace where = MemoryPlace::device) {
  const PurposeScope scope(purpose);
  const PlaceScope place(where);
  Tensor t = empty({size}, dtype, device.shared_from_this());
  fill_(t, value);
  return t;
}

}  // namespace

// Delegates so that the destructor gives the parameters back when memory runs out halfway.
FlatParameters::FlatParameters(std::vector<ParameterGroup> groups, std::vector<DType> states,
                               const StateShape& shape_of, float initial, const UpdateUnit& unit_of)
    : FlatParameters() {
  groups_ = std::move(groups);
  dtypes_ = std::move(states);
  const OpScope scope(owner);
  const std::vector<SlabSizes> sizes =
      plan(shape_of, unit_of, slab_bytes / static_cast<int64_t>(sizeof(float)));
  for (size_t i = 0; i < sizes.size(); ++i) {
    move_into(i, sizes[i]);
    add_states(i, sizes[i], initial);
  }
}

void FlatParameters::check_whole(const char* op) const {
  check<RankError>(!keeps_parts(), op,
                   "what follows updates must not read parameters that ranks keep in parts: use "
                   "shard_states()");
}

// An old slab goes when its parameters have left it; then their states take memory.
void FlatParameters::separate(const StateShape& shape_of, float initial) {
  const OpScope scope(owner);
  for (Slab& slab : slabs_) slab.states.clear();
  std::vector<Slab> old = std::exchange(slabs_, {});
  std::vector<size_t> slab_of;  // by parameter: the old one
  for (const Slot& slot : std::exchange(slots_, {})) {
    slab_of.push_back(slot.slab);
    slot.parameter.impl().is_optimized = false;
    slot.parameter.impl().grad_place = {};
  }
  runs_.clear();
  const std::vector<SlabSizes> sizes = plan(
      shape_of, [](size_t) { return 0; }, 0);
  size_t next = 0, gone = 0, complete = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    move_into(i, sizes[i]);
    while (next < slots_.size() && slots_[next].slab == i) ++next;
    const size_t left = next < slots_.size() ? slab_of[next] : old.size();
    if (gone == left) continue;
    while (gone < left) old[gone++] = {};
    for (; complete <= i; ++complete) add_states(complete, sizes[complete], initial);
  }
}

FlatParameters::~FlatParameters() {
  for (const Slot& slot : slots_) {
    slot.parameter.impl().is_optimized = false;
    slot.parameter.impl().grad_place = {};
  }
  set_weight_copies(WeightCopyUse::never);
}

// The group of each slot.
std::vector<size_t> FlatParameters::collect(const UpdateUnit& unit_of) {
  check_shards(groups_);
  std::unordered_set<const TensorImpl*> seen;
  std::vector<size_t> group_of;
  std::vector<Ownership::Parameter> line;
  for (size_t g = 0; g < groups_.size(); ++g) {
    check(!groups_[g].offload || groups_[g].offload->part_bytes > 0, owner,
          "parts of offloaded states must have bytes, got 0");
    for (size_t i = 0; i < groups_[g].parameters.size(); ++i) {
      const Tensor& p = groups_[g].parameters[i];
      if (!p.requires_grad()) continue;
      const std::string name = p.impl().name.empty() ? fmt::format("{}.{}", g, i) : p.impl().name;
      check<AutogradError>(seen.insert(&p.impl()).second, owner, "'{}' appears twice", name);
      check_parameter(p, name);
      slots_.push_back({.parameter = p, .name = name});
      group_of.push_back(g);
      line.push_back({p.numel(), unit_of(g) > 0});
    }
  }
  check(!slots_.empty(), owner, "at least one parameter that requires a gradient is needed, got {}",
        count_parameters(groups_) == 0 ? "no parameters" : "only such that do not");
  ownership_.emplace(line, shard() ? shard()->ranks : 1);
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].own = ownership_->part(i, rank());
  return group_of;
}

// Slabs have at most `slab_elements`, or one parameter that is larger.
std::vector<FlatParameters::SlabSizes> FlatParameters::plan(const StateShape& shape_of,
                                                            const UpdateUnit& unit_of,
                                                            int64_t slab_elements) {
  const std::vector<size_t> group_of = collect(unit_of);
  std::vector<SlabSizes> sizes;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const size_t group = group_of[i];
    SlabSizes& used = slab_for(i, groups_[group].offload.has_value(), slab_elements, sizes);
    const auto take = [](int64_t count, int64_t& end) { return std::exchange(end, end + count); };
    slot.slab = sizes.size() - 1;
    slot.offset = take(round_up(slot.parameter.numel()), used.parameters);
    for (size_t s = 0; s < dtypes_.size(); ++s) {
      std::optional<State>& state = slot.states.emplace_back();
      if (!ownership_->has(i, rank())) continue;
      const std::optional<Shape> shape = shape_of(s, slot.parameter, group);
      if (!shape) continue;
      state = own_part(*shape, slot, unit_of(group));
      state->offset = take(round_up(state->shape.numel()), used.states[s]);
    }
    add_to_runs(i, group, unit_of(group));
  }
  return sizes;
}

// Where a slot goes: the last slab or a new one.
FlatParameters::SlabSizes& FlatParameters::slab_for(size_t slot, bool is_offloaded,
                                                    int64_t slab_elements,
                                                    std::vector<SlabSizes>& sizes) const {
  const Tensor& p = slots_[slot].parameter;
  const auto most = keeps_parts()
                        ? static_cast<int64_t>(shard()->gathered_bytes / size_of(p.dtype()))
                        : slab_elements;
  const int rank = keeps_parts() ? ownership_->owner(slot) : 0;
  const bool is_divided = keeps_parts() && ownership_->is_divided(slot);
  if (sizes.empty() || sizes.back().parameters + round_up(p.numel()) > most ||
      sizes.back().dtype != p.dtype() || sizes.back().is_offloaded != is_offloaded ||
      sizes.back().owner != rank || sizes.back().divided || is_divided) {
    SlabSizes& fresh = sizes.emplace_back();
    fresh = {p.dtype(), 0, std::vector<int64_t>(dtypes_.size()), is_offloaded, rank};
    const ElementRange& own = slots_[slot].own;
    if (is_divided) fresh.divided = {own.offset, round_up(own.size)};
  }
  return sizes.back();
}

// What of a state is here: for each own element one, or one for as many as are updated together.
FlatParameters::State FlatParameters::own_part(const Shape& shape, const Slot& slot, int64_t unit) {
  const int64_t all = slot.parameter.numel();
  if (slot.own.size == all) return {shape};
  const int64_t each = shape.numel() == all ? 1 : unit, first = slot.own.offset / each;
  return {.shape = {(slot.own.end() + each - 1) / each - first}, .first = first};
}

void FlatParameters::add_to_runs(size_t index, size_t group, int64_t unit) {
  const Slot& slot = slots_[index];
  const bool has_master = slot.parameter.dtype() != DType::f32;
  const std::optional<Offload>& offload = groups_[group].offload;
  const auto bytes = [&](const Run& run) {
    int64_t sum = has_master ? run.elements.size * int64_t{sizeof(float)} : 0;
    for (size_t s = 0; s < dtypes_.size(); ++s)
      sum += run.states[s].size * static_cast<int64_t>(size_of(dtypes_[s]));
    return static_cast<uint64_t>(sum);
  };
  Run own{group, slot.slab, {slot.offset, round_up(slot.parameter.numel())}, {}, index, 1};
  for (const std::optional<State>& state : slot.states)
    own.states.push_back(state ? ElementRange{state->offset, round_up(state->shape.numel())}
                               : ElementRange{});
  own.is_elsewhere = !ownership_->has(index, rank());
  own.is_staged = offload && bytes(own) <= offload->part_bytes;

  if (ownership_->is_divided(index) && !own.is_elsewhere) return add_divided(own);
  if (offload && !own.is_staged && unit == 1) {
    const auto each = static_cast<int64_t>(bytes(own)) / own.elements.size;
    const int64_t part =
        std::max<int64_t>(1, static_cast<int64_t>(offload->part_bytes) / each / part_unit) *
        part_unit;
    for (int64_t at = 0; at < own.elements.size; at += part) {
      Run& run = runs_.emplace_back(own);
      run.is_staged = true;
      const auto cut = [&](ElementRange& range) {
        if (range.size > 0) range = {range.offset + at, std::min(part, range.size - at)};
      };
      cut(run.elements);
      for (ElementRange& range : run.states) cut(range);
    }
    return;
  }
  if (!runs_.empty() && joins(runs_.back(), own)) {
    Run& last = runs_.back();
    if (!offload || (last.is_staged && bytes(last) + bytes(own) <= offload->part_bytes)) {
      last.elements.size += own.elements.size;
      for (size_t s = 0; s < dtypes_.size(); ++s) last.states[s].size += own.states[s].size;
      ++last.slots;
      return;
    }
  }
  runs_.push_back(std::move(own));
}

// The own elements, with what other ranks update before and behind them.
void FlatParameters::add_divided(const Run& whole) {
  const ElementRange& own = slots_[whole.first_slot].own;
  const int64_t begin = whole.elements.offset;
  const auto add = [&](int64_t first, int64_t end, bool is_elsewhere) {
    if (first == end) return;
    Run& run = runs_.emplace_back(whole);
    run.elements = {begin + first, end - first};
    run.is_elsewhere = is_elsewhere;
    if (is_elsewhere) run.states.assign(run.states.size(), {});
  };
  add(0, own.offset, true);
  add(own.offset, round_up(own.end()), false);
  add(round_up(own.end()), whole.elements.size, true);
}

// Whether a run may go on with the next parameter: kernels find its states where they find it.
bool FlatParameters::joins(const Run& run, const Run& next) const {
  const Slot& first = slots_[run.first_slot];
  if (run.group != next.group || run.slab != next.slab || run.elements.offset != first.offset ||
      run.is_elsewhere != next.is_elsewhere)
    return false;
  for (size_t s = 0; s < dtypes_.size(); ++s)
    if ((run.states[s].size > 0) != (next.states[s].size > 0)) return false;
  return true;
}

void FlatParameters::move_into(size_t index, const SlabSizes& sizes) {
  Device& device = this->device();
  Slab slab;
  slab.is_offloaded = sizes.is_offloaded;
  slab.owner = sizes.owner;
  slab.own = sizes.divided.value_or(ElementRange{0, sizes.parameters});
  const MemoryPlace where = sizes.is_offloaded ? MemoryPlace::host : MemoryPlace::device;
  const bool is_low = sizes.dtype != DType::f32;
  if (sizes.divided)
    slab.whole = filled(sizes.parameters, 0, device, Purpose::parameter, sizes.dtype);
  const bool has_values = !sizes.divided || slab.own.size > 0;
  const bool is_kept = sizes.divided ? has_values : !keeps_parts() || slab.owner == rank();
  const bool has_masters = is_low && is_kept;
  if (is_low && has_values)
    slab.low = filled(slab.own.size, 0, device, Purpose::parameter, sizes.dtype);
  if (has_masters)
    slab.parameters = filled(slab.own.size, 0, device, Purpose::optimizer, DType::f32, where);
  else if (!is_low && has_values)
    slab.parameters = filled(slab.own.size, 0, device, Purpose::parameter);
  for (Slot& slot : slots_) {
    if (slot.slab != index) continue;
    const Tensor target = view(slab.held(), slot);
    copy_into(slot.parameter, target);
    TensorImpl& impl = slot.parameter.impl();
    impl.storage = target.impl().storage;
    impl.strides = target.strides();
    impl.offset = slot.offset;
    impl.is_optimized = true;
  }
  if (slab.whole) {
    if (has_values) copy_into(view(slab.whole, slab.own), slab.values());
    slab.whole_version = slab.whole.impl().storage->version();
  }
  if (has_masters) copy_into(slab.low, slab.parameters);
  slab.low_version = slab.low ? slab.low.impl().storage->version() : 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.slab != index || !ownership_->has(i, rank())) continue;
    const int64_t begin = slot.offset + slot.own.offset - slab.own.offset;
    slot.part = slot.own.size == slot.parameter.numel()
                    ? slot.parameter
                    : view(slab.values(), {begin, slot.own.size});
  }
  slabs_.push_back(std::move(slab));
}

void FlatParameters::add_states(size_t index, const SlabSizes& sizes, float initial) {
  Slab& slab = slabs_[index];
  const MemoryPlace where = slab.is_offloaded ? MemoryPlace::host : MemoryPlace::device;
  for (size_t s = 0; s < dtypes_.size(); ++s)
    slab.states.push_back(sizes.states[s] > 0 ? filled(sizes.states[s], initial, device(),
                                                       Purpose::optimizer, dtypes_[s], where)
                                              : Tensor());
}

void FlatParameters::drop_gradients() const {
  for (const Slot& slot : slots_) {
    if (slot.part) slot.part.impl().grad = {};
    slot.parameter.impl().grad = {};
    slot.parameter.impl().grad_place = {};
  }
}

// What was written to a parameter since its master was: the master follows where it would not give
// the same 16-bit number, so what was not touched keeps its other bits.
void FlatParameters::follow_parameters() {
  constexpr int64_t piece = 1 << 22;  // elements at a time: bounds what this needs
  const NoGrad guard;
  const NoAutocast no_autocast;
  const PurposeScope purpose(Purpose::workspace);
  for (Slab& slab : slabs_) {
    if (!slab.low || !slab.parameters || slab.low.impl().storage->version() == slab.low_version)
      continue;
    const int64_t size = slab.low.numel();
    for (int64_t begin = 0; begin < size; begin += piece) {
      const ElementRange range = {begin, std::min(piece, size - begin)};
      const Tensor master = view(slab.parameters, range), low = view(slab.low, range);
      const Tensor differs = not_equal(cast(master, low.dtype()), low);
      copy_into(where(differs, cast(low, DType::f32), master), master);
    }
    slab.low_version = slab.low.impl().storage->version();
  }
}

void FlatParameters::publish(bool is_offloaded_done) {
  for (Slab& slab : slabs_) {
    if (slab.low) {
      if (slab.parameters && !(slab.is_offloaded && is_offloaded_done))
        copy_into(slab.parameters, slab.low);
      slab.low_version = slab.low.impl().storage->version();
    } else if (WeightCopies* copies = slab.whole ? nullptr : WeightCopies::of(slab.parameters)) {
      copies->update(slab.parameters);
    }
  }
}

void FlatParameters::set_weight_copies(WeightCopyUse use) {
  if (!slabs_.empty() && keeps_parts()) use = WeightCopyUse::never;
  weight_copies_ = use;
  for (const Slab& slab : slabs_)
    if (!slab.low && !slab.whole)
      slab.parameters.impl().storage->set_copies(
          use == WeightCopyUse::never ? nullptr : std::make_shared<WeightCopies>(use));
}

void FlatParameters::place_gradients(DType dtype) const {
  const OpScope scope(owner);
  for (size_t i = 0; i < slabs_.size(); ++i) {
    // What an optimizer allocates lies apart from what steps need.
    const Tensor zeros = filled(slabs_[i].held().numel(), 0, device(), Purpose::optimizer, dtype);
    zeros.device().set_purpose(*zeros.impl().storage, Purpose::gradient);
    for (const Slot& slot : slots_)
      if (slot.slab == i) slot.parameter.impl().grad_place = view(zeros, slot);
  }
}

Tensor FlatParameters::view(const Tensor& whole, const Slot& slot) {
  const Shape& shape = slot.parameter.shape();
  return make_view(whole, shape, dense_strides(shape), slot.offset);
}

Tensor FlatParameters::view(const Tensor& whole, const ElementRange& range) {
  return make_view(whole, {range.size}, {1}, range.offset);
}

RunValues FlatParameters::values(size_t run) const {
  const Run& of = runs_[run];
  const Slab& slab = slabs_[of.slab];
  const int64_t begin = of.elements.offset - slab.own.offset;
  RunValues values{view(slab.parameters, {begin, of.elements.size}), {}};
  for (size_t s = 0; s < slab.states.size(); ++s)
    values.states.push_back(slab.states[s] ? view(slab.states[s], of.states[s]) : Tensor());
  return values;
}

Tensor FlatParameters::master(const Slot& slot) const {
  const Slab& slab = slabs_[slot.slab];
  if (slab.whole) return own_master(slot);
  return slab.parameters ? view(slab.parameters, slot) : Tensor();
}

Tensor FlatParameters::own_master(const Slot& slot) const {
  const Slab& slab = slabs_[slot.slab];
  if (!slot.part || !slab.parameters) return {};
  if (!slot.is_divided()) return view(slab.parameters, slot);
  return view(slab.parameters, {slot.offset + slot.own.offset - slab.own.offset, slot.own.size});
}

Tensor FlatParameters::state(const Slot& slot, size_t state) const {
  if (!slot.states[state]) return {};
  const Tensor& whole = slabs_[slot.slab].states[state];
  const auto& [shape, offset, first] = *slot.states[state];
  if (whole) return make_view(whole, shape, dense_strides(shape), offset);
  return empty(shape, dtypes_[state], device().shared_from_this());  // without elements
}

}  // namespace rw
