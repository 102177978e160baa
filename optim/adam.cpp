#include "rewind/optim/adam.h"

#include <cmath>

#include "rewind/core/tensor/launch.h"
#include "rewind/optim/update_rule.h"

namespace rw {

namespace {

class AdamRule : public UpdateRule {
 public:
  AdamRule(const AdamOptions& options, bool decoupled) : options_(options), decoupled_(decoupled) {
    const auto is_beta = [](float beta) { return beta >= 0 && beta < 1; };
    check(options.lr >= 0 && std::isfinite(options.lr), "adam", "lr must be >= 0, got {}",
          options.lr);
    check(is_beta(options.beta1) && is_beta(options.beta2), "adam",
          "betas must be in [0, 1), got {} and {}", options.beta1, options.beta2);
    check(options.eps > 0, "adam", "eps must be positive, got {}", options.eps);
    check(options.weight_decay >= 0, "adam", "weight_decay must be >= 0, got {}",
          options.weight_decay);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void update(const Target& t) const override {
    for (const GradientTable::Part& part : t.parts) {
      const kernels::AdamParams p{.offset = {},
                                  .first = part.first,
                                  .rows = part.rows,
                                  .shift = t.shift,
                                  .lr = t.learning_rate,
                                  .beta1 = options_.beta1,
                                  .beta2 = options_.beta2,
                                  .eps = options_.eps,
                                  .weight_decay = t.weight_decay,
                                  .decoupled = decoupled_};
      launch("adam",
             {inout(t.parameters), in(part.gradients), inout(t.states[0]), inout(t.states[1]),
              in(t.table), in(t.control)},
             p, {.threads = {part.rows << t.shift, 1, 1}});
    }
  }

 private:
  AdamOptions options_;
  bool decoupled_;
};

}  // namespace

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options)
    : Adam(one_group(std::move(parameters)), options) {}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Optimizer(std::move(groups), std::make_unique<AdamRule>(options, false)) {}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : AdamW(one_group(std::move(parameters)), options) {}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& o)
    : Optimizer(std::move(groups),
                std::make_unique<AdamRule>(
                    AdamOptions{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay}, true)) {}

}  // namespace rw
