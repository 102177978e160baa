#include "optim/adam.h"

#include "optim/base/update_rule.h"

namespace rw {

namespace {

class AdamRule : public UpdateRule {
 public:
  AdamRule(const AdamOptions& options, bool decoupled);

  std::vector<std::string> state_names() const override;
  int64_t unit(size_t) const override { return 1; }
  void update(const Target& target) const override;

 private:
  AdamOptions options_;
  bool decoupled_;
};

AdamRule::AdamRule(const AdamOptions& options, bool decoupled)
    : options_(options), decoupled_(decoupled) {
  check_rates("adam", options.lr, options.weight_decay);
  check_moments("adam", options.beta1, options.beta2, options.eps);
  learning_rate = options.lr;
  weight_decay = options.weight_decay;
}

std::vector<std::string> AdamRule::state_names() const {
  if (options_.amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

void AdamRule::update(const Target& t) const {
  if (options_.amsgrad) {
    moment_update(
        t, MOMENT_AMSGRAD,
        {.a = options_.beta1, .b = options_.beta2, .eps = options_.eps, .flags = decoupled_},
        t.states[0], t.states[1], t.states[2]);
    return;
  }
  for (const GradientTable::Part& part : t.gradients.parts(t.run)) {
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

}  // namespace

std::unique_ptr<UpdateRule> adam_rule(const AdamOptions& options) {
  return std::make_unique<AdamRule>(options, false);
}

std::unique_ptr<UpdateRule> adamw_rule(const AdamWOptions& o) {
  const AdamOptions options{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad};
  return std::make_unique<AdamRule>(options, true);
}

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options)
    : Adam(one_group(std::move(parameters)), options) {}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Optimizer(std::move(groups), adam_rule(options)) {}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : AdamW(one_group(std::move(parameters)), options) {}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Optimizer(std::move(groups), adamw_rule(options)) {}

}  // namespace rw
