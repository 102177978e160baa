#include "optim/base/update_rule.h"

namespace rw {

std::vector<DType> UpdateRule::state_dtypes() const {
  std::vector<DType> all(state_names().size());
  for (size_t s = 0; s < all.size(); ++s) all[s] = state_dtype(s);
  return all;
}

Tensor UpdateTarget::master(const FlatParameters::Slot& slot) const {
  const Shape& shape = slot.part.shape();
  const int64_t begin = slot.offset + slot.own.offset - all.runs()[run].elements.offset;
  return make_view(parameters, shape, dense_strides(shape), parameters.impl().offset + begin);
}

Tensor UpdateTarget::state(const FlatParameters::Slot& slot, size_t state) const {
  const auto& [shape, offset, first] = slot.states[state].value();
  const Tensor& whole = states[state];
  return make_view(whole, shape, dense_strides(shape),
                   whole.impl().offset + offset - all.runs()[run].states[state].offset);
}

}  // namespace rw
