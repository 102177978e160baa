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

size_t count_parameters(const std::vector<ParameterGroup>& groups) {
  size_t count = 0;
  for (const ParameterGroup& group : groups) count += group.parameters.size();
  return count;
}

Tensor filled(int64_t size, float value, Device& device, Purpose purpose,
              DType dtype = DType::f32) {
  const PurposeScope scope(purpose);
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

// Delegates so that the destructor gives the parameters back when memory runs out halfway.
FlatParameters::FlatParameters(std::vector<ParameterGroup> groups, size_t states,
                               const StateShape& shape_of, float initial)
    : FlatParameters() {
  groups_ = std::move(groups);
  const OpScope scope(owner);
  const std::vector<SlabSizes> sizes =
      plan(states, shape_of, slab_bytes / static_cast<int64_t>(sizeof(float)));
  for (size_t i = 0; i < sizes.size(); ++i) move_into(i, sizes[i], initial);
}

void FlatParameters::separate(size_t states, const StateShape& shape_of, float initial) {
  const OpScope scope(owner);
  for (Slab& slab : slabs_) slab.states.clear();
  std::vector<Slab> old = std::exchange(slabs_, {});
  for (const Slot& slot : std::exchange(slots_, {})) {
    slot.parameter.impl().is_optimized = false;
    slot.parameter.impl().grad_place = {};
  }
  runs_.clear();
  const std::vector<SlabSizes> sizes = plan(states, shape_of, 0);
  for (size_t i = 0; i < sizes.size(); ++i) move_into(i, sizes[i], initial);
}

FlatParameters::~FlatParameters() {
  for (const Slot& slot : slots_) {
    slot.parameter.impl().is_optimized = false;
    slot.parameter.impl().grad_place = {};
  }
  set_weight_copies(WeightCopyUse::never);
}

// Slabs have at most `slab_elements`, or one parameter that is larger.
std::vector<FlatParameters::SlabSizes> FlatParameters::plan(size_t states,
                                                            const StateShape& shape_of,
                                                            int64_t slab_elements) {
  std::unordered_set<const TensorImpl*> seen;
  std::vector<SlabSizes> sizes;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t i = 0; i < groups_[g].parameters.size(); ++i) {
      const Tensor& p = groups_[g].parameters[i];
      if (!p.requires_grad()) continue;
      const std::string name = p.impl().name.empty() ? fmt::format("{}.{}", g, i) : p.impl().name;
      check<AutogradError>(seen.insert(&p.impl()).second, owner, "'{}' appears twice", name);
      check_parameter(p, name);
      const int64_t size = round_up(p.numel());
      if (sizes.empty() || sizes.back().parameters + size > slab_elements ||
          sizes.back().dtype != p.dtype())
        sizes.push_back({p.dtype(), 0, std::vector<int64_t>(states)});
      const size_t slab = sizes.size() - 1;
      SlabSizes& used = sizes.back();
      if (runs_.empty() || runs_.back().group != g || runs_.back().slab != slab) {
        runs_.push_back({g, slab, {used.parameters, 0}, {}, slots_.size(), 0});
        for (const int64_t begin : used.states) runs_.back().states.push_back({begin, 0});
      }
      Run& run = runs_.back();
      const auto take = [](int64_t count, Range& range, int64_t& end) {
        range.size += count;
        return std::exchange(end, end + count);
      };
      Slot slot{p, slab, take(size, run.elements, used.parameters), name};
      for (size_t s = 0; s < states; ++s) {
        std::optional<State>& state = slot.states.emplace_back();
        if (const std::optional<Shape> shape = shape_of(s, p, g))
          state = {*shape, take(round_up(shape->numel()), run.states[s], used.states[s])};
      }
      slots_.push_back(std::move(slot));
      ++run.slots;
    }
  }
  check(!slots_.empty(), owner, "at least one parameter that requires a gradient is needed, got {}",
        count_parameters(groups_) == 0 ? "no parameters" : "only such that do not");
  return sizes;
}

void FlatParameters::move_into(size_t index, const SlabSizes& sizes, float initial) {
  Device& device = this->device();
  Slab slab;
  const bool is_low = sizes.dtype != DType::f32;
  if (is_low) slab.low = filled(sizes.parameters, 0, device, Purpose::parameter, sizes.dtype);
  slab.parameters =
      filled(sizes.parameters, 0, device, is_low ? Purpose::optimizer : Purpose::parameter);
  for (const Slot& slot : slots_) {
    if (slot.slab != index) continue;
    const Tensor target = view(is_low ? slab.low : slab.parameters, slot);
    copy_into(slot.parameter, target);
    TensorImpl& impl = slot.parameter.impl();
    impl.storage = target.impl().storage;
    impl.strides = target.strides();
    impl.offset = slot.offset;
    impl.is_optimized = true;
  }
  if (is_low) copy_into(slab.low, slab.parameters);
  slab.low_version = is_low ? slab.low.impl().storage->version() : 0;
  for (const int64_t size : sizes.states)
    slab.states.push_back(size > 0 ? filled(size, initial, device, Purpose::optimizer) : Tensor());
  slabs_.push_back(std::move(slab));
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
    if (!slab.low || slab.low.impl().storage->version() == slab.low_version) continue;
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

void FlatParameters::publish() {
  for (Slab& slab : slabs_) {
    if (slab.low) {
      copy_into(slab.parameters, slab.low);
      slab.low_version = slab.low.impl().storage->version();
    } else if (WeightCopies* copies = WeightCopies::of(slab.parameters)) {
      copies->update(slab.parameters);
    }
  }
}

void FlatParameters::set_weight_copies(WeightCopyUse use) {
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
    const Tensor zeros =
        filled(slabs_[i].parameters.numel(), 0, device(), Purpose::optimizer, dtype);
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

Tensor FlatParameters::master(const Slot& slot) const {
  return view(slabs_[slot.slab].parameters, slot);
}

Tensor FlatParameters::state(const Slot& slot, size_t state) const {
  if (!slot.states[state]) return {};
  const Tensor& whole = slabs_[slot.slab].states[state];
  const auto& [shape, offset] = *slot.states[state];
  if (whole) return make_view(whole, shape, dense_strides(shape), offset);
  return empty(shape, DType::f32, device().shared_from_this());  // without elements
}

}  // namespace rw
