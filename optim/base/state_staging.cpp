#include "optim/base/state_staging.h"

#include <algorithm>
#include <utility>

#include "core/tensor/primitives.h"

namespace rw {

namespace {

Tensor empty_in(MemoryPlace where, const Tensor& like, DType dtype) {
  const PurposeScope purpose(Purpose::workspace);
  const PlaceScope place(where);
  return empty(like.shape(), dtype, like.device().shared_from_this());
}

Tensor copy_in(MemoryPlace where, const Tensor& source) {
  Tensor copy = empty_in(where, source, source.dtype());
  copy_dense(source, copy);
  return copy;
}

bool lies_on_host(const Tensor& tensor) {
  const Storage& storage = *tensor.impl().storage;
  return storage.is_on_host() || storage.place() == MemoryPlace::host;
}

}  // namespace

StateStaging::~StateStaging() {
  for (Staged& staged : staged_) give_gradients_back(staged);
}

const FlatParameters::Slab& StateStaging::slab_of(size_t run) const {
  return parameters_.slabs()[parameters_.runs()[run].slab];
}

std::span<const FlatParameters::Slot> StateStaging::slots_of(size_t run) const {
  const FlatParameters::Run& of = parameters_.runs()[run];
  return std::span(parameters_.slots()).subspan(of.first_slot, of.slots);
}

bool StateStaging::comes(size_t run) const {
  return parameters_.runs()[run].is_staged || parameters_.runs()[run].is_on_host;
}

void StateStaging::update(const Update& update_run) {
  const std::vector<FlatParameters::Run>& runs = parameters_.runs();
  for (size_t run = 0; run < runs.size(); ++run) {
    if (runs[run].is_elsewhere) continue;
    size_t next = run + 1;
    while (next < runs.size() && !comes(next)) ++next;
    take(run, next, update_run);
  }
  for (; !staged_.empty(); staged_.pop_front()) put_back(staged_.front());
}

void StateStaging::update_one(size_t run, const Update& update_run) {
  take(run, parameters_.runs().size(), update_run);
}

void StateStaging::take(size_t run, size_t next, const Update& update_run) {
  RunValues values = begin(run, next);
  if (parameters_.runs()[run].is_on_host) {
    const HostWorkScope scope;
    update_run(run, std::move(values));
  } else {
    update_run(run, std::move(values));
  }
  end(run);
}

RunValues StateStaging::begin(size_t run, size_t next) {
  if (!comes(run)) return parameters_.values(run);
  if (staged_.empty() || staged_.back().run < run) fetch(run);
  if (staged_.back().wait) staged_.back().wait();
  RunValues values = staged_.back().values;
  if (next < parameters_.runs().size()) fetch(next);
  return values;
}

void StateStaging::fetch(size_t run) {
  Staged& staged = staged_.emplace_back();
  staged.run = run;
  staged.values = parameters_.values(run);
  if (parameters_.runs()[run].is_on_host) return fetch_to_host(staged);
  if (slab_of(run).low)
    staged.values.parameters = copy_in(MemoryPlace::device, staged.values.parameters);
  for (Tensor& state : staged.values.states)
    if (state && state.numel() > 0) state = copy_in(MemoryPlace::device, state);
}

void StateStaging::fetch_to_host(Staged& staged) {
  parameters_.send_away(staged.run);
  Tensor& values = staged.values.parameters;
  if (!lies_on_host(values)) values = copy_in(MemoryPlace::host, values);
  for (const FlatParameters::Slot& slot : slots_of(staged.run)) {
    Tensor& gradient = slot.part.impl().grad;
    staged.gradients.push_back(gradient);
    if (gradient && gradient.numel() > 0 && !lies_on_host(gradient))
      gradient = copy_in(MemoryPlace::host, gradient);
  }
  {
    const HostWorkScope scope;
    gradients_.locate(staged.run);
  }
  staged.wait = parameters_.device().mark();
}

void StateStaging::give_gradients_back(Staged& staged) const {
  const auto slots = slots_of(staged.run);
  for (size_t i = 0; i < staged.gradients.size(); ++i)
    slots[i].part.impl().grad = std::move(staged.gradients[i]);
  staged.gradients.clear();
}

void StateStaging::end(size_t run) {
  if (!comes(run)) {
    if (slab_of(run).where == MemoryPlace::host)
      parameters_.publish(run, parameters_.values(run).parameters);
    return;
  }
  if (parameters_.runs()[run].is_on_host)
    publish_from_host(*std::ranges::find(staged_, run, &Staged::run));
  for (; staged_.front().run < run; staged_.pop_front()) put_back(staged_.front());
}

void StateStaging::publish_from_host(Staged& staged) {
  give_gradients_back(staged);
  const Tensor& values = staged.values.parameters;
  const Tensor& low = slab_of(staged.run).low;
  if (!low) {
    const Tensor home = parameters_.values(staged.run).parameters;
    if (!lies_on_host(home)) copy_dense(values, home);
    return;
  }
  {
    const HostWorkScope scope;
    if (lies_on_host(low)) return parameters_.publish(staged.run, values);
    staged.low = empty_in(MemoryPlace::host, values, low.dtype());
    copy_into(values, staged.low);
  }
  parameters_.publish(staged.run, staged.low);
}

void StateStaging::put_back(const Staged& staged) const {
  if (parameters_.runs()[staged.run].is_on_host) return;
  const RunValues home = parameters_.values(staged.run);
  if (slab_of(staged.run).low) copy_dense(staged.values.parameters, home.parameters);
  for (size_t s = 0; s < home.states.size(); ++s)
    if (home.states[s] && home.states[s].numel() > 0)
      copy_dense(staged.values.states[s], home.states[s]);
  parameters_.publish(staged.run, staged.values.parameters);
}

}  // namespace rw
