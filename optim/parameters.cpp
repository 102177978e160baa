#include "rewind/optim/parameters.h"

#include <algorithm>
#include <fnmatch.h>
#include <unordered_set>

#include "rewind/core/ops/ops.h"
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

// Which rank keeps a parameter's state: that in whose part of all elements its middle lies.
class OwnerOf {
 public:
  explicit OwnerOf(const std::vector<ParameterGroup>& groups) {
    if (groups.empty()) return;
    shard_ = groups.front().shard;
    for (const ParameterGroup& group : groups) {
      check(group.shard == shard_, owner, "all groups must have the same shard");
      check(!group.shard || !group.offload, owner,
            "states must be sharded or offloaded, got a group with both");
      for (const Tensor& p : group.parameters)
        if (p.requires_grad()) total_ += p.numel();
    }
    check(!shard_ || (shard_->rank >= 0 && shard_->rank < shard_->ranks), owner,
          "a shard must be one of its ranks, got {} of {}", shard_ ? shard_->rank : 0,
          shard_ ? shard_->ranks : 0);
  }
  // Of one with `size` elements behind `begin` of all.
  int operator()(int64_t begin, int64_t size) const {
    if (!shard_ || total_ == 0) return 0;
    const int64_t rank = (2 * begin + size) * shard_->ranks / (2 * total_);
    return static_cast<int>(std::min<int64_t>(rank, shard_->ranks - 1));
  }
  bool is_here(int rank) const { return !shard_ || shard_->rank == rank; }

 private:
  std::optional<Shard> shard_;
  int64_t total_ = 0;
};

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

std::vector<ParameterGroup> groups_by_name(const std::vector<Tensor>& parameters,
                                           const std::vector<NamedGroup>& named) {
  std::vector<ParameterGroup> groups;
  for (const NamedGroup& group : named)
    groups.push_back({.lr_scale = group.lr_scale, .weight_decay = group.weight_decay});
  groups.emplace_back();  // the rest
  std::vector<size_t> matched(named.size());
  for (const Tensor& parameter : parameters) {
    size_t i = 0;
    const char* name = parameter.impl().name.c_str();
    while (i < named.size() && fnmatch(named[i].pattern.c_str(), name, 0) != 0) ++i;
    if (i < named.size()) ++matched[i];
    if (i < named.size() && named[i].is_frozen)
      Tensor(parameter).set_requires_grad(false);
    else
      groups[i].parameters.push_back(parameter);
  }
  for (size_t i = 0; i < named.size(); ++i)
    check(matched[i] > 0, "groups_by_name", "each pattern must match a parameter, got '{}'",
          named[i].pattern);
  return groups;
}

std::vector<ParameterGroup> decay_groups(const std::vector<Tensor>& parameters,
                                         float weight_decay) {
  ParameterGroup decaying{.weight_decay = weight_decay}, others{.weight_decay = 0.0f};
  for (const Tensor& p : parameters) (p.rank() >= 2 ? decaying : others).parameters.push_back(p);
  return {std::move(decaying), std::move(others)};
}

std::vector<ParameterGroup> offload_states(std::vector<ParameterGroup> groups, const Offload& how) {
  for (ParameterGroup& group : groups) group.offload = how;
  return groups;
}

std::vector<ParameterGroup> offload_states(std::vector<Tensor> parameters, const Offload& how) {
  return offload_states(one_group(std::move(parameters)), how);
}

std::vector<ParameterGroup> shard_states(std::vector<ParameterGroup> groups, const Shard& shard) {
  if (shard.ranks == 1) return groups;
  for (ParameterGroup& group : groups) group.shard = shard;
  return groups;
}

std::vector<ParameterGroup> shard_states(std::vector<Tensor> parameters, const Shard& shard) {
  return shard_states(one_group(std::move(parameters)), shard);
}

std::vector<ParameterGroup> shard_parameters(std::vector<ParameterGroup> groups, Shard shard) {
  if (shard.gathered_bytes == 0) shard.gathered_bytes = uint64_t{8} << 20;
  return shard_states(std::move(groups), shard);
}

std::vector<ParameterGroup> shard_parameters(std::vector<Tensor> parameters, const Shard& shard) {
  return shard_parameters(one_group(std::move(parameters)), shard);
}

// Delegates so that the destructor gives the parameters back when memory runs out halfway.
FlatParameters::FlatParameters(std::vector<ParameterGroup> groups, std::vector<DType> states,
                               const StateShape& shape_of, float initial, bool in_parts)
    : FlatParameters() {
  groups_ = std::move(groups);
  dtypes_ = std::move(states);
  const OpScope scope(owner);
  const std::vector<SlabSizes> sizes =
      plan(shape_of, in_parts, slab_bytes / static_cast<int64_t>(sizeof(float)));
  for (size_t i = 0; i < sizes.size(); ++i) {
    move_into(i, sizes[i]);
    add_states(i, sizes[i], initial);
  }
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
  const std::vector<SlabSizes> sizes = plan(shape_of, /* in_parts */ false, 0);
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

// Slabs have at most `slab_elements`, or one parameter that is larger.
std::vector<FlatParameters::SlabSizes> FlatParameters::plan(const StateShape& shape_of,
                                                            bool in_parts, int64_t slab_elements) {
  std::unordered_set<const TensorImpl*> seen;
  std::vector<SlabSizes> sizes;
  const OwnerOf owner_of(groups_);
  int64_t before = 0;  // elements of the parameters so far
  for (size_t g = 0; g < groups_.size(); ++g) {
    const bool is_offloaded = groups_[g].offload.has_value();
    check(!is_offloaded || groups_[g].offload->part_bytes > 0, owner,
          "parts of offloaded states must have bytes, got 0");
    for (size_t i = 0; i < groups_[g].parameters.size(); ++i) {
      const Tensor& p = groups_[g].parameters[i];
      if (!p.requires_grad()) continue;
      const std::string name = p.impl().name.empty() ? fmt::format("{}.{}", g, i) : p.impl().name;
      check<AutogradError>(seen.insert(&p.impl()).second, owner, "'{}' appears twice", name);
      check_parameter(p, name);
      const int64_t size = round_up(p.numel());
      const int rank = owner_of(std::exchange(before, before + p.numel()), p.numel());
      const int64_t most =
          keeps_parts()
              ? static_cast<int64_t>(groups_[g].shard->gathered_bytes / size_of(p.dtype()))
              : slab_elements;
      if (sizes.empty() || sizes.back().parameters + size > most ||
          sizes.back().dtype != p.dtype() || sizes.back().is_offloaded != is_offloaded ||
          (keeps_parts() && sizes.back().owner != rank))
        sizes.push_back({p.dtype(), 0, std::vector<int64_t>(dtypes_.size()), is_offloaded, rank});
      SlabSizes& used = sizes.back();
      const auto take = [](int64_t count, int64_t& end) { return std::exchange(end, end + count); };
      Slot slot{p, sizes.size() - 1, take(size, used.parameters), name};
      slot.owner = rank;
      for (size_t s = 0; s < dtypes_.size(); ++s) {
        std::optional<State>& state = slot.states.emplace_back();
        if (!owner_of.is_here(slot.owner)) continue;
        if (const std::optional<Shape> shape = shape_of(s, p, g))
          state = {*shape, take(round_up(shape->numel()), used.states[s])};
      }
      add_to_runs(slot, g, in_parts);
      slots_.push_back(std::move(slot));
    }
  }
  check(!slots_.empty(), owner, "at least one parameter that requires a gradient is needed, got {}",
        count_parameters(groups_) == 0 ? "no parameters" : "only such that do not");
  return sizes;
}

void FlatParameters::add_to_runs(const Slot& slot, size_t group, bool in_parts) {
  const bool has_master = slot.parameter.dtype() != DType::f32;
  const std::optional<Offload>& offload = groups_[group].offload;
  const auto bytes = [&](const Run& run) {
    int64_t sum = has_master ? run.elements.size * int64_t{sizeof(float)} : 0;
    for (size_t s = 0; s < dtypes_.size(); ++s)
      sum += run.states[s].size * static_cast<int64_t>(size_of(dtypes_[s]));
    return static_cast<uint64_t>(sum);
  };
  Run own{group, slot.slab, {slot.offset, round_up(slot.parameter.numel())}, {}, slots_.size(), 1};
  for (const std::optional<State>& state : slot.states)
    own.states.push_back(state ? Range{state->offset, round_up(state->shape.numel())} : Range{});
  own.is_elsewhere = groups_[group].shard && slot.owner != groups_[group].shard->rank;
  own.is_staged = offload && bytes(own) <= offload->part_bytes;

  if (offload && !own.is_staged && in_parts) {
    const auto each = static_cast<int64_t>(bytes(own)) / own.elements.size;
    const int64_t part =
        std::max<int64_t>(1, static_cast<int64_t>(offload->part_bytes) / each / part_unit) *
        part_unit;
    for (int64_t at = 0; at < own.elements.size; at += part) {
      Run& run = runs_.emplace_back(own);
      run.is_staged = true;
      const auto cut = [&](Range& range) {
        if (range.size > 0) range = {range.offset + at, std::min(part, range.size - at)};
      };
      cut(run.elements);
      for (Range& range : run.states) cut(range);
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
  const MemoryPlace where = sizes.is_offloaded ? MemoryPlace::host : MemoryPlace::device;
  const bool is_low = sizes.dtype != DType::f32;
  if (is_low) slab.low = filled(sizes.parameters, 0, device, Purpose::parameter, sizes.dtype);
  const bool has_masters = is_low && !(keeps_parts() && slab.owner != shard()->rank);
  if (has_masters)
    slab.parameters = filled(sizes.parameters, 0, device, Purpose::optimizer, DType::f32, where);
  else if (!is_low)
    slab.parameters = filled(sizes.parameters, 0, device, Purpose::parameter);
  for (const Slot& slot : slots_) {
    if (slot.slab != index) continue;
    const Tensor target = view(slab.values(), slot);
    copy_into(slot.parameter, target);
    TensorImpl& impl = slot.parameter.impl();
    impl.storage = target.impl().storage;
    impl.strides = target.strides();
    impl.offset = slot.offset;
    impl.is_optimized = true;
  }
  if (has_masters) copy_into(slab.low, slab.parameters);
  slab.low_version = is_low ? slab.low.impl().storage->version() : 0;
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

void FlatParameters::drop_gradients() {
  for (const Slot& slot : slots_) {
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
      const Range range = {begin, std::min(piece, size - begin)};
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
    } else if (WeightCopies* copies = WeightCopies::of(slab.parameters)) {
      copies->update(slab.parameters);
    }
  }
}

void FlatParameters::set_weight_copies(WeightCopyUse use) {
  if (!slabs_.empty() && keeps_parts()) use = WeightCopyUse::never;
  weight_copies_ = use;
  for (const Slab& slab : slabs_)
    if (!slab.low)
      slab.parameters.impl().storage->set_copies(
          use == WeightCopyUse::never ? nullptr : std::make_shared<WeightCopies>(use));
}

void FlatParameters::place_gradients(DType dtype) {
  const OpScope scope(owner);
  for (size_t i = 0; i < slabs_.size(); ++i) {
    // What an optimizer allocates lies apart from what steps need.
    const Tensor zeros = filled(slabs_[i].values().numel(), 0, device(), Purpose::optimizer, dtype);
    zeros.device().set_purpose(*zeros.impl().storage, Purpose::gradient);
    for (const Slot& slot : slots_)
      if (slot.slab == i) slot.parameter.impl().grad_place = view(zeros, slot);
  }
}

Tensor FlatParameters::view(const Tensor& whole, const Slot& slot) {
  const Shape& shape = slot.parameter.shape();
  return make_view(whole, shape, dense_strides(shape), slot.offset);
}

Tensor FlatParameters::view(const Tensor& whole, const Range& range) {
  return make_view(whole, {range.size}, {1}, range.offset);
}

RunValues FlatParameters::values(size_t run) const {
  const Run& of = runs_[run];
  const Slab& slab = slabs_[of.slab];
  RunValues values{view(slab.parameters, of.elements), {}};
  for (size_t s = 0; s < slab.states.size(); ++s)
    values.states.push_back(slab.states[s] ? view(slab.states[s], of.states[s]) : Tensor());
  return values;
}

Tensor FlatParameters::master(const Slot& slot) const {
  const Tensor& whole = slabs_[slot.slab].parameters;
  return whole ? view(whole, slot) : Tensor();
}

Tensor FlatParameters::state(const Slot& slot, size_t state) const {
  if (!slot.states[state]) return {};
  const Tensor& whole = slabs_[slot.slab].states[state];
  const auto& [shape, offset] = *slot.states[state];
  if (whole) return make_view(whole, shape, dense_strides(shape), offset);
  return empty(shape, dtypes_[state], device().shared_from_this());  // without elements
}

}  // namespace rw
