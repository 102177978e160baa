#include "optim/sgd.h"

#include <cmath>

#include "core/tensor/launch.h"
#include "optim/base/update_rule.h"

namespace rw {

namespace {

class SGDRule : public UpdateRule {
 public:
  explicit SGDRule(const SGDOptions& options) : options_(options) {
    check(options.lr >= 0 && std::isfinite(options.lr), "sgd", "lr must be >= 0, got {}",
          options.lr);
    check(options.momentum >= 0 && std::isfinite(options.momentum), "sgd",
          "momentum must be >= 0, got {}", options.momentum);
    check(options.weight_decay >= 0, "sgd", "weight_decay must be >= 0, got {}",
          options.weight_decay);
    check(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "sgd",
          "nesterov needs momentum > 0 and dampening == 0, got {} and {}", options.momentum,
          options.dampening);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override {
    if (options_.momentum == 0) return {};
    return {"momentum_buffer"};
  }

  int64_t unit(size_t) const override { return 1; }
  void update(const Target& t) const override {
    const Tensor& momentum = t.states.empty() ? t.parameters : t.states[0];
    for (const GradientTable::Part& part : t.gradients.parts(t.run)) {
      const kernels::SgdParams p{.offset = {},
                                 .first = part.first,
                                 .rows = part.rows,
                                 .shift = t.shift,
                                 .lr = t.learning_rate,
                                 .momentum = options_.momentum,
                                 .dampening = options_.dampening,
                                 .weight_decay = t.weight_decay,
                                 .nesterov = options_.nesterov,
                                 .maximize = options_.maximize};
      launch("sgd",
             {inout(t.parameters), in(part.gradients), inout(momentum), in(t.table), in(t.control)},
             p, {.threads = {part.rows << t.shift, 1, 1}});
    }
  }

 private:
  SGDOptions options_;
};

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& options)
    : SGD(one_group(std::move(parameters)), options) {}

SGD::SGD(std::vector<ParameterGroup> groups, const SGDOptions& options)
    : Optimizer(std::move(groups), std::make_unique<SGDRule>(options)) {}

}  // namespace rw
