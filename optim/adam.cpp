#include "rewind/optim/adam.h"

#include "rewind/optim/adam_rule.h"

namespace rw {

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options)
    : Adam(one_group(std::move(parameters)), options) {}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Optimizer(std::move(groups), std::make_unique<AdamRule>(options, false)) {}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : AdamW(one_group(std::move(parameters)), options) {}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& o)
    : Optimizer(std::move(groups),
                std::make_unique<AdamRule>(
                    AdamOptions{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad}, true)) {}

}  // namespace rw
