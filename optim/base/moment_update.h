// The kernel moment_update, for update rules with up to three states.
#pragma once

#include "../../core/tensor/launch.h"
#include "update_rule.h"

namespace rw {

// Updates a run by `rule` (MOMENT_* of shaders/params.h). `p` has what the rule reads of a, b, eps
// and flags; states that it does not have may be undefined.
void moment_update(const UpdateRule::Target& target, uint32_t rule, kernels::MomentUpdateParams p,
                   const Tensor& first, const Tensor& second = {}, const Tensor& third = {});

// ValueError unless lr and weight_decay are >= 0 and finite.
void check_rates(const char* optimizer, float lr, float weight_decay);
// ValueError unless the betas are in [0, 1) and eps > 0.
void check_moments(const char* optimizer, float beta1, float beta2, float eps);

}  // namespace rw
