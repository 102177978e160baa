#include "rewind/optim/update_rule.h"

namespace rw {

std::vector<DType> UpdateRule::state_dtypes() const {
  std::vector<DType> all(state_names().size());
  for (size_t s = 0; s < all.size(); ++s) all[s] = state_dtype(s);
  return all;
}

Tensor UpdateTarget::master(const FlatParameters::Slot& slot) const {
  const Shape& shape = slot.parameter.shape();
  return make_view(parameters, shape, dense_strides(shape),
                   parameters.impl().offset + slot.offset - all.runs()[run].elements.offset);
}

Tensor UpdateTarget::state(const FlatParameters::Slot& slot, size_t state) const {
  const auto& [shape, offset] = slot.states[state].value();
  const Tensor& whole = states[state];
  return make_view(whole, shape, dense_strides(shape),
                   whole.impl().offset + offset - all.runs()[run].states[state].offset);
}

}  // namespace rw
