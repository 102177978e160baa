#include "optim/base/state_staging.h"

#include <utility>

#include "core/tensor/primitives.h"

namespace rw {

namespace {

Tensor copy_on_device(const Tensor& source) {
  const PurposeScope purpose(Purpose::workspace);
  const PlaceScope place(MemoryPlace::device);
  Tensor copy = empty(source.shape(), source.dtype(), source.device().shared_from_this());
  copy_dense(source, copy);
  return copy;
}

}  // namespace

const FlatParameters::Slab& StateStaging::slab_of(size_t run) const {
  return parameters_.slabs()[parameters_.runs()[run].slab];
}

void StateStaging::update(const Update& update_run) {
  for (size_t run = 0; run < parameters_.runs().size(); ++run) {
    if (parameters_.runs()[run].is_elsewhere) continue;
    update_run(run, begin(run));
    end(run);
  }
  for (; !staged_.empty(); staged_.pop_front())
    put_back(staged_.front().first, staged_.front().second);
}

RunValues StateStaging::begin(size_t run) {
  const std::vector<FlatParameters::Run>& runs = parameters_.runs();
  if (!runs[run].is_staged) return parameters_.values(run);
  if (staged_.empty() || staged_.back().first < run) fetch(run);
  size_t next = run + 1;
  while (next < runs.size() && !runs[next].is_staged) ++next;
  const RunValues values = staged_.back().second;
  if (next < runs.size()) fetch(next);
  return values;
}

void StateStaging::fetch(size_t run) {
  RunValues values = parameters_.values(run);
  if (slab_of(run).low) values.parameters = copy_on_device(values.parameters);
  for (Tensor& state : values.states)
    if (state && state.numel() > 0) state = copy_on_device(state);
  staged_.emplace_back(run, std::move(values));
}

void StateStaging::end(size_t run) {
  if (!parameters_.runs()[run].is_staged) {
    if (slab_of(run).where == MemoryPlace::host)
      parameters_.publish(run, parameters_.values(run).parameters);
    return;
  }
  for (; staged_.front().first < run; staged_.pop_front())
    put_back(staged_.front().first, staged_.front().second);
}

void StateStaging::put_back(size_t run, const RunValues& values) const {
  const RunValues home = parameters_.values(run);
  if (slab_of(run).low) copy_dense(values.parameters, home.parameters);
  for (size_t s = 0; s < home.states.size(); ++s)
    if (home.states[s] && home.states[s].numel() > 0) copy_dense(values.states[s], home.states[s]);
  parameters_.publish(run, values.parameters);
}

}  // namespace rw
