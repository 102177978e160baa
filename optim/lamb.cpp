#include "optim/lamb.h"

#include <cmath>

#include "core/tensor/launch.h"
#include "optim/base/update_rule.h"

namespace rw {

namespace {

class LambRule : public UpdateRule {
 public:
  explicit LambRule(const LambOptions& options) : options_(options) {
    check(options.lr >= 0 && std::isfinite(options.lr), "lamb", "lr must be >= 0, got {}",
          options.lr);
    check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
          "lamb", "betas must be in [0, 1), got {} and {}", options.beta1, options.beta2);
    check(options.eps >= 0, "lamb", "eps must be >= 0, got {}", options.eps);
    check(options.weight_decay >= 0, "lamb", "weight_decay must be >= 0, got {}",
          options.weight_decay);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void prepare(const GradientTable& gradients) override {
    const PurposeScope purpose(Purpose::optimizer);
    const auto device = gradients.table().device().shared_from_this();
    runs_.clear();
    for (const GradientTable::Run& run : gradients.runs()) {
      Tensor begins = empty({static_cast<int64_t>(run.begins.size())}, DType::i32, device);
      begins.copy_from(run.begins);
      runs_.push_back({run.first, run.rows, std::move(begins)});
    }
  }

  void update(const Target& t) const override {
    const Run& run = runs_[t.run];
    const PurposeScope purpose(Purpose::workspace);
    const auto device = t.parameters.device().shared_from_this();
    const int64_t parameters = run.begins.numel() - 1;
    const Tensor partial = empty({2, run.rows}, DType::f32, device);
    const Tensor ratio = empty({run.rows}, DType::f32, device);
    const Tensor &m = t.states[0], &v = t.states[1];
    const kernels::LambParams p{.offset = {},
                                .first = run.first,
                                .rows = run.rows,
                                .number = run.first,
                                .chunks = run.rows,
                                .lr = t.learning_rate,
                                .beta1 = options_.beta1,
                                .beta2 = options_.beta2,
                                .eps = options_.eps,
                                .weight_decay = t.weight_decay,
                                .parameters = static_cast<uint32_t>(parameters),
                                .adapt = t.weight_decay != 0};
    for (const GradientTable::Part& part : t.gradients.parts(t.run)) {
      kernels::LambParams q = p;
      q.first = part.first, q.rows = part.rows;
      launch("lamb_norms",
             {in(t.parameters), in(part.gradients), inout(m), inout(v), in(t.table), in(t.control),
              out(partial)},
             q, {.threads = {q.rows, 1, 1}});
    }
    launch("lamb_ratio", {in(partial), in(run.begins), in(t.control), out(ratio)}, p,
           {.threads = {p.parameters, 1, 1}});
    launch("lamb", {inout(t.parameters), in(m), in(v), in(t.table), in(ratio), in(t.control)}, p,
           {.threads = {p.rows, 1, 1}});
  }

 private:
  // The rows of a run in the table, and where each parameter's rows begin among them.
  struct Run {
    uint32_t first = 0, rows = 0;
    Tensor begins;  // i32 [parameters + 1]
  };

  LambOptions options_;
  std::vector<Run> runs_;
};

}  // namespace

Lamb::Lamb(std::vector<Tensor> parameters, const LambOptions& options)
    : Lamb(one_group(std::move(parameters)), options) {}

Lamb::Lamb(std::vector<ParameterGroup> groups, const LambOptions& options)
    : Optimizer(std::move(groups), std::make_unique<LambRule>(options)) {}

}  // namespace rw
