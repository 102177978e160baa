#include "optim/adagrad.h"

#include "optim/base/update_rule.h"

namespace rw {

namespace {

class AdagradRule : public UpdateRule {
 public:
  explicit AdagradRule(const AdagradOptions& options) : options_(options) {
    check_rates("adagrad", options.lr, options.weight_decay);
    check(options.lr_decay >= 0, "adagrad", "lr_decay must be >= 0, got {}", options.lr_decay);
    check(options.initial_accumulator_value >= 0, "adagrad",
          "initial_accumulator_value must be >= 0, got {}", options.initial_accumulator_value);
    check(options.eps > 0, "adagrad", "eps must be positive, got {}", options.eps);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override { return {"sum"}; }
  float initial_state() const override { return options_.initial_accumulator_value; }

  int64_t unit(size_t) const override { return 1; }
  void update(const Target& t) const override {
    moment_update(t, MOMENT_ADAGRAD, {.a = options_.lr_decay, .eps = options_.eps}, t.states[0]);
  }

 private:
  AdagradOptions options_;
};

}  // namespace

Adagrad::Adagrad(std::vector<Tensor> parameters, const AdagradOptions& options)
    : Adagrad(one_group(std::move(parameters)), options) {}

Adagrad::Adagrad(std::vector<ParameterGroup> groups, const AdagradOptions& options)
    : Optimizer(std::move(groups), std::make_unique<AdagradRule>(options)) {}

}  // namespace rw
