#include "optim/base/parameters.h"

#include <algorithm>
#include <span>

#include "ops/ops.h"

namespace rw {

namespace {

// Marks the slabs of optimizers: the op that allocated them.
constexpr const char* owner = "optimizer";

Tensor filled(int64_t size, float value, Device& device, Purpose purpose, DType dtype = DType::f32,
              MemoryPlace where = MemoryPlace::device) {
  const PurposeScope scope(purpose);
  const PlaceScope place(where);
  Tensor t = empty({size}, dtype, device.shared_from_this());
  fill_(t, value);
  return t;
}

// Notes that 16-bit parameters and their masters agree.
void note_same(FlatParameters::Slab& slab) {
  const auto version = [](const Tensor& t) { return t ? t.impl().storage->version() : 0; };
  slab.low_version = version(slab.low);
  slab.master_version = version(slab.parameters);
}

}  // namespace

// This delegates, so that the destructor gives the parameters back if memory runs out halfway.
FlatParameters::FlatParameters(std::vector<ParameterGroup> groups, const StateRule& rule)
    : FlatParameters(rule) {
  groups_ = std::move(groups);
  const OpScope scope(owner);
  placement_ = Placement::of(groups_, rule_);
  for (size_t i = 0; i < placement_.slabs.size(); ++i) {
    move_into(i);
    add_states(i);
  }
  std::vector<Tensor> held;
  for (const Slab& slab : slabs_) held.push_back(slab.held());
  values_ = streamed(held);
}

void FlatParameters::check_whole(const char* op) const {
  check<RankError>(!placement_.keeps_parts, op,
                   "averages and monitors must not read parameters that ranks keep in parts: use "
                   "shard_states()");
}

// An old slab is freed when its parameters have left it, before their states take memory.
void FlatParameters::separate() {
  if (values_.second) return;
  const OpScope scope(owner);
  for (Slab& slab : slabs_) slab.states.clear();
  std::vector<Slab> old = std::exchange(slabs_, {});
  std::vector<size_t> slab_of;  // by parameter: the old one
  for (const Slot& slot : std::exchange(placement_.slots, {})) {
    slab_of.push_back(slot.slab);
    slot.parameter.impl().is_optimized = false;
    slot.parameter.impl().grad_place = {};
  }
  placement_ = Placement::of(groups_, rule_, /* is_separate */ true);
  size_t next = 0, gone = 0, complete = 0;
  for (size_t i = 0; i < placement_.slabs.size(); ++i) {
    move_into(i);
    while (next < slots().size() && slots()[next].slab == i) ++next;
    const size_t left = next < slots().size() ? slab_of[next] : old.size();
    if (gone == left) continue;
    while (gone < left) old[gone++] = {};
    for (; complete <= i; ++complete) add_states(complete);
  }
}

FlatParameters::~FlatParameters() {
  for (const Slot& slot : slots()) {
    slot.parameter.impl().is_optimized = false;
    slot.parameter.impl().grad_place = {};
  }
  set_weight_copies(WeightCopyUse::never);
}

void FlatParameters::move_into(size_t index) {
  Device& device = this->device();
  Slab slab{placement_.slabs[index]};
  const bool is_low = slab.dtype != DType::f32, has_values = !slab.is_divided || slab.is_kept;
  const bool has_masters = is_low && slab.is_kept;
  if (slab.is_divided)
    slab.whole = filled(slab.elements, 0, device, Purpose::parameter, slab.dtype);
  if (is_low && has_values)
    slab.low = filled(slab.own.size, 0, device, Purpose::parameter, slab.dtype);
  if (has_masters)
    slab.parameters = filled(slab.own.size, 0, device, Purpose::optimizer, DType::f32, slab.where);
  else if (!is_low && has_values)
    slab.parameters = filled(slab.own.size, 0, device, Purpose::parameter);
  for (const Slot& slot : slots()) {
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
  note_same(slab);
  for (Slot& slot : placement_.slots) {
    if (slot.slab != index || !slot.is_here) continue;
    const int64_t begin = slot.offset + slot.own.offset - slab.own.offset;
    slot.part = slot.own.size == slot.parameter.numel()
                    ? slot.parameter
                    : view(slab.values(), {begin, slot.own.size});
  }
  // One leaves before the next one comes, so that they never lie on the device together.
  if (leaves(slab.held())) device.to_host(*slab.held().impl().storage);
  slabs_.push_back(std::move(slab));
}

bool FlatParameters::leaves(const Tensor& tensor) const {
  return placement_.streamed_bytes > 0 && tensor.bytes() >= least_streamed_bytes;
}

FlatParameters::HostStream FlatParameters::streamed(const std::vector<Tensor>& tensors) const {
  std::vector<std::shared_ptr<Storage>> storages;
  for (const Tensor& tensor : tensors)
    if (leaves(tensor)) storages.push_back(tensor.impl().storage);
  if (storages.empty()) return {};
  auto source = std::make_unique<HostSource>(storages);
  auto stream = std::make_unique<Stream>(std::move(storages), *source,
                                         StreamOptions{.most_bytes = placement_.streamed_bytes});
  return {std::move(source), std::move(stream)};
}

MemoryPlace FlatParameters::update_place() const {
  return std::ranges::any_of(runs(), &Run::is_on_host) ? MemoryPlace::host : MemoryPlace::device;
}

bool FlatParameters::send_away(size_t run) const {
  const Run& of = runs()[run];
  if (values_.second) values_.second->send_away(*slabs_[of.slab].held().impl().storage);
  bool are_there = true;
  for (const Slot& slot : std::span(slots()).subspan(of.first_slot, of.slots)) {
    const Tensor& gradient = slot.parameter.impl().grad;
    if (gradient && gradients_.second) gradients_.second->send_away(*gradient.impl().storage);
    are_there &= gradient && gradient.impl().storage->is_on_host();
  }
  return are_there;
}

void FlatParameters::end_window() const {
  if (values_.second) values_.second->end_window();
  if (gradients_.second) gradients_.second->end_window();
}

void FlatParameters::add_states(size_t index) {
  Slab& slab = slabs_[index];
  for (size_t s = 0; s < slab.state_elements.size(); ++s)
    slab.states.push_back(slab.state_elements[s] > 0
                              ? filled(slab.state_elements[s], rule_.initial_state(), device(),
                                       Purpose::optimizer, rule_.state_dtype(s), slab.where)
                              : Tensor());
}

void FlatParameters::drop_gradients() const {
  for (const Slot& slot : slots()) {
    if (slot.part) slot.part.impl().grad = {};
    slot.parameter.impl().grad = {};
    slot.parameter.impl().grad_place = {};
  }
}

// Brings masters up to date with parameters that were written to since. A master follows where it
// would not round to the same 16-bit number, so elements that nobody touched keep their other bits.
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

void FlatParameters::publish() {
  for (Slab& slab : slabs_) {
    if (slab.low) {
      if (slab.parameters && slab.parameters.impl().storage->version() != slab.master_version)
        copy_into(slab.parameters, slab.low);
      note_same(slab);
    } else if (WeightCopies* copies = slab.whole ? nullptr : WeightCopies::of(slab.parameters)) {
      copies->update(slab.parameters);
    }
  }
}

void FlatParameters::publish(size_t run, const Tensor& masters) {
  Slab& slab = slabs_[runs()[run].slab];
  if (!slab.low) return;
  copy_into(masters, view(slab.low, runs()[run].elements));
  note_same(slab);
}

void FlatParameters::set_weight_copies(WeightCopyUse use) {
  if (placement_.keeps_parts || values_.second) use = WeightCopyUse::never;
  weight_copies_ = use;
  for (const Slab& slab : slabs_)
    if (!slab.low && !slab.whole)
      slab.parameters.impl().storage->set_copies(
          use == WeightCopyUse::never ? nullptr : std::make_shared<WeightCopies>(use));
}

void FlatParameters::place_gradients(DType dtype) const {
  const OpScope scope(owner);
  for (size_t i = 0; i < slabs_.size(); ++i) (void)place_gradients_of(i, dtype);
}

Tensor FlatParameters::place_gradients_of(size_t slab, DType dtype) const {
  // The allocations of an optimizer lie apart from those of steps.
  Tensor zeros = filled(slabs_[slab].held().numel(), 0, device(), Purpose::optimizer, dtype);
  zeros.device().set_purpose(*zeros.impl().storage, Purpose::gradient);
  for (const Slot& slot : slots())
    if (slot.slab == slab) slot.parameter.impl().grad_place = view(zeros, slot);
  return zeros;
}

void FlatParameters::stream_gradients() const {
  gradients_ = {};  // those of the last window
  if (!values_.second) return place_gradients();
  const OpScope scope(owner);
  std::vector<Tensor> all;
  for (size_t i = 0; i < slabs_.size(); ++i) {
    all.push_back(place_gradients_of(i, DType::f32));
    if (leaves(all.back())) device().to_host(*all.back().impl().storage);
  }
  gradients_ = streamed(all);
}

Tensor FlatParameters::view(const Tensor& whole, const Slot& slot) {
  const Shape& shape = slot.parameter.shape();
  return make_view(whole, shape, dense_strides(shape), slot.offset);
}

Tensor FlatParameters::view(const Tensor& whole, const ElementRange& range) {
  return make_view(whole, {range.size}, {1}, range.offset);
}

RunValues FlatParameters::values(size_t run) const {
  const Run& of = runs()[run];
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
  return empty(shape, rule_.state_dtype(state), device().shared_from_this());  // without elements
}

}  // namespace rw
