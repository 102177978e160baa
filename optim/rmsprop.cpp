#include "optim/rmsprop.h"

#include "optim/base/update_rule.h"

namespace rw {

namespace {

class RMSpropRule : public UpdateRule {
 public:
  explicit RMSpropRule(const RMSpropOptions& options) : options_(options) {
    check_rates("rmsprop", options.lr, options.weight_decay);
    check(options.alpha >= 0 && options.alpha < 1, "rmsprop", "alpha must be in [0, 1), got {}",
          options.alpha);
    check(options.eps > 0, "rmsprop", "eps must be positive, got {}", options.eps);
    check(options.momentum >= 0 && std::isfinite(options.momentum), "rmsprop",
          "momentum must be >= 0, got {}", options.momentum);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override {
    std::vector<std::string> names = {"square_avg"};
    if (options_.momentum != 0) names.push_back("momentum_buffer");
    if (options_.centered) names.push_back("grad_avg");
    return names;
  }

  int64_t unit(size_t) const override { return 1; }
  void update(const Target& t) const override {
    const Tensor velocity = options_.momentum != 0 ? t.states[1] : Tensor();
    const Tensor mean = options_.centered ? t.states.back() : Tensor();
    moment_update(t, MOMENT_RMSPROP,
                  {.a = options_.alpha,
                   .b = options_.momentum,
                   .eps = options_.eps,
                   .flags = options_.centered},
                  t.states[0], velocity, mean);
  }

 private:
  RMSpropOptions options_;
};

}  // namespace

RMSprop::RMSprop(std::vector<Tensor> parameters, const RMSpropOptions& options)
    : RMSprop(one_group(std::move(parameters)), options) {}

RMSprop::RMSprop(std::vector<ParameterGroup> groups, const RMSpropOptions& options)
    : Optimizer(std::move(groups), std::make_unique<RMSpropRule>(options)) {}

}  // namespace rw
