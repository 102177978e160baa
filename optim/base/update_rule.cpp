#include "optim/base/update_rule.h"

#include <cmath>

namespace rw {

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

uint32_t UpdateTarget::chunk(const FlatParameters::Slot& slot) const {
  return gradients.first_chunk(static_cast<size_t>(&slot - all.slots().data()));
}

void moment_update(const UpdateRule::Target& t, uint32_t rule, kernels::MomentUpdateParams p,
                   const Tensor& first, const Tensor& second, const Tensor& third) {
  p.shift = t.shift;
  p.lr = t.learning_rate;
  p.weight_decay = t.weight_decay;
  const auto bound = [&](const Tensor& state) { return inout(state ? state : t.parameters); };
  for (const GradientTable::Part& part : t.gradients.parts(t.run)) {
    p.first = part.first;
    p.rows = part.rows;
    launch("moment_update",
           {inout(t.parameters), in(part.gradients), inout(first), bound(second), bound(third),
            in(t.table), in(t.control)},
           p, {.threads = {part.rows << t.shift, 1, 1}, .variant = {rule}});
  }
}

void check_rates(const char* optimizer, float lr, float weight_decay) {
  check(lr >= 0 && std::isfinite(lr), optimizer, "lr must be >= 0, got {}", lr);
  check(weight_decay >= 0 && std::isfinite(weight_decay), optimizer,
        "weight_decay must be >= 0, got {}", weight_decay);
}

void check_moments(const char* optimizer, float beta1, float beta2, float eps) {
  const auto is_beta = [](float beta) { return beta >= 0 && beta < 1; };
  check(is_beta(beta1) && is_beta(beta2), optimizer, "betas must be in [0, 1), got {} and {}",
        beta1, beta2);
  check(eps > 0, optimizer, "eps must be positive, got {}", eps);
}

}  // namespace rw
