#include "optim/lion.h"

#include "optim/base/update_rule.h"

namespace rw {

namespace {

class LionRule : public UpdateRule {
 public:
  explicit LionRule(const LionOptions& options) : options_(options) {
    const auto is_beta = [](float beta) { return beta >= 0 && beta < 1; };
    check_rates("lion", options.lr, options.weight_decay);
    check(is_beta(options.beta1) && is_beta(options.beta2), "lion",
          "betas must be in [0, 1), got {} and {}", options.beta1, options.beta2);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override { return {"exp_avg"}; }

  int64_t unit(size_t) const override { return 1; }
  void update(const Target& t) const override {
    moment_update(t, MOMENT_LION, {.a = options_.beta1, .b = options_.beta2}, t.states[0]);
  }

 private:
  LionOptions options_;
};

}  // namespace

Lion::Lion(std::vector<Tensor> parameters, const LionOptions& options)
    : Lion(one_group(std::move(parameters)), options) {}

Lion::Lion(std::vector<ParameterGroup> groups, const LionOptions& options)
    : Optimizer(std::move(groups), std::make_unique<LionRule>(options)) {}

}  // namespace rw
