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
  check<DTypeError>(p.dtype() == DType::f32, owner,
                    "parameters must be f32 (Autocast makes the f16 copies), got {} for '{}'",
                    rw::name(p.dtype()), name);
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

Tensor zeroed(int64_t size, Device& device, Purpose purpose) {
  const PurposeScope scope(purpose);
  Tensor t = empty({size}, DType::f32, device.shared_from_this());
  fill_(t, 0);
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
FlatParameters::FlatParameters(std::vector<ParameterGroup> groups, int states) : FlatParameters() {
  groups_ = std::move(groups);
  const OpScope scope(owner);
  const std::vector<int64_t> sizes = plan();
  for (size_t i = 0; i < sizes.size(); ++i) move_into(i, sizes[i], states);
}

FlatParameters::~FlatParameters() {
  for (const Slot& slot : slots_) {
    slot.parameter.impl().is_optimized = false;
    slot.parameter.impl().grad_place = {};
  }
}

std::vector<int64_t> FlatParameters::plan() {
  std::unordered_set<const TensorImpl*> seen;
  std::vector<int64_t> sizes;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t i = 0; i < groups_[g].parameters.size(); ++i) {
      const Tensor& p = groups_[g].parameters[i];
      if (!p.requires_grad()) continue;
      const std::string name = p.impl().name.empty() ? fmt::format("{}.{}", g, i) : p.impl().name;
      check<AutogradError>(seen.insert(&p.impl()).second, owner, "'{}' appears twice", name);
      check_parameter(p, name);
      const int64_t size = round_up(p.numel());
      const int64_t capacity = slab_bytes / static_cast<int64_t>(sizeof(float));
      if (sizes.empty() || sizes.back() + size > capacity) sizes.push_back(0);
      const size_t slab = sizes.size() - 1;
      slots_.push_back({p, slab, sizes.back(), name});
      if (runs_.empty() || runs_.back().group != g || runs_.back().slab != slab)
        runs_.push_back({g, slab, sizes.back(), 0});
      runs_.back().size += size;
      sizes.back() += size;
    }
  }
  check(!slots_.empty(), owner, "at least one parameter that requires a gradient is needed, got {}",
        count_parameters(groups_) == 0 ? "no parameters" : "only such that do not");
  return sizes;
}

void FlatParameters::move_into(size_t index, int64_t size, int states) {
  Device& device = this->device();
  Slab slab;
  slab.parameters = zeroed(size, device, Purpose::parameter);
  for (const Slot& slot : slots_) {
    if (slot.slab != index) continue;
    const Tensor target = view(slab.parameters, slot);
    copy_into(slot.parameter, target);
    TensorImpl& impl = slot.parameter.impl();
    impl.storage = target.impl().storage;
    impl.strides = target.strides();
    impl.offset = slot.offset;
    impl.is_optimized = true;
  }
  for (int i = 0; i < states; ++i) slab.states.push_back(zeroed(size, device, Purpose::optimizer));
  slabs_.push_back(std::move(slab));
}

void FlatParameters::drop_gradients() {
  for (const Slot& slot : slots_) {
    slot.parameter.impl().grad = {};
    slot.parameter.impl().grad_place = {};
  }
}

void FlatParameters::place_gradients() {
  const OpScope scope(owner);
  for (size_t i = 0; i < slabs_.size(); ++i) {
    // What an optimizer allocates lies apart from what steps need.
    const Tensor zeros = zeroed(slabs_[i].parameters.numel(), device(), Purpose::optimizer);
    zeros.device().set_purpose(*zeros.impl().storage, Purpose::gradient);
    for (const Slot& slot : slots_)
      if (slot.slab == i) slot.parameter.impl().grad_place = view(zeros, slot);
  }
}

Tensor FlatParameters::view(const Tensor& whole, const Slot& slot) {
  const Shape& shape = slot.parameter.shape();
  return make_view(whole, shape, dense_strides(shape), slot.offset);
}

Tensor FlatParameters::view(const Tensor& whole, const Run& run) {
  return make_view(whole, {run.size}, {1}, run.offset);
}

}  // namespace rw
