#include "optim/muon.h"

#include <cmath>
#include <limits>

#include "ops/numeric.h"
#include "optim/base/update_rule.h"

namespace rw {

namespace {

// Returns x with its singular values moved to about 1. The products are computed on its shorter
// side.
Tensor orthogonalise(Tensor x, const MuonOptions& o) {
  const auto [a, b, c] = o.ns_coefficients;
  Tensor length = clamp(norm(x), o.eps, std::numeric_limits<float>::infinity());
  x = div(std::move(x), std::move(length));
  const bool is_wide = x.size(0) <= x.size(1);
  const int64_t side = std::min(x.size(0), x.size(1));
  const auto device = x.device().shared_from_this();
  const Tensor gram = empty({side, side}, DType::f32, device),
               factor = empty(gram.shape(), DType::f32, device);
  Tensor next = empty(x.shape(), DType::f32, device);
  for (int step = 0; step < o.ns_steps; ++step) {
    const Tensor turned = make_view(x, {x.size(1), x.size(0)}, {1, x.size(1)}, x.impl().offset);
    multiply_into(is_wide ? x : turned, is_wide ? turned : x, gram);
    copy_into(gram, factor);
    multiply_into(gram, gram, factor, c, b);
    copy_into(x, next);
    multiply_into(is_wide ? factor : x, is_wide ? x : factor, next, 1, a);
    std::swap(x, next);
  }
  return x;
}

class MuonRule : public UpdateRule {
 public:
  // Groups from number `groups` on belong to AdamW.
  MuonRule(const MuonOptions& options, const AdamWOptions& adamw, size_t groups)
      : options_(options), adamw_(adamw_rule(adamw)), groups_(groups) {
    check_rates("muon", options.lr, options.weight_decay);
    check(options.lr > 0, "muon", "lr must be positive, got {}", options.lr);
    check(options.momentum >= 0 && options.momentum < 1, "muon",
          "momentum must be in [0, 1), got {}", options.momentum);
    check(options.eps > 0, "muon", "eps must be positive, got {}", options.eps);
    check(options.ns_steps >= 1 && options.ns_steps < 100, "muon",
          "ns_steps must be in [1, 100), got {}", options.ns_steps);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override {
    std::vector<std::string> names = adamw_->state_names();
    names.insert(names.begin(), "momentum_buffer");
    return names;
  }

  std::optional<Shape> state_shape(size_t state, const Tensor& parameter,
                                   size_t group) const override {
    const bool is_matrix = group < groups_;
    check<ShapeError>(!is_matrix || parameter.rank() >= 2, "muon",
                      "needs parameters of two axes or more, got {} for '{}'; give it to AdamW",
                      parameter, parameter.impl().name);
    if (is_matrix != (state == 0)) return {};
    return parameter.shape();
  }

  int64_t unit(size_t group) const override { return group < groups_ ? 0 : adamw_->unit(group); }

  void update(const Target& t) const override {
    if (t.group < groups_) {
      for (const FlatParameters::Slot& slot : t.slots)
        if (slot.parameter.grad().defined() && slot.parameter.numel() > 0) update_matrix(t, slot);
      return;
    }
    Target others = t;
    others.states.erase(others.states.begin());
    adamw_->update(others);
  }

 private:
  void update_matrix(const Target& t, const FlatParameters::Slot& slot) const {
    const PurposeScope purpose(Purpose::workspace);
    const NoGrad guard;
    const Tensor w = t.master(slot), grad = slot.parameter.grad(), buffer = t.state(slot, 0);
    const int64_t rows = w.size(0), cols = w.numel() / rows;
    Tensor u = empty({rows, cols}, DType::f32, w.device().shared_from_this());
    const uint32_t n = count32(w.numel(), "muon");
    const Launch flat{.threads = {flat_threads(n), 1, 1}};
    launch("muon_momentum", {in(grad), inout(buffer), out(u), in(t.control)},
           kernels::MuonParams{
               .offset = {}, .n = n, .momentum = options_.momentum, .nesterov = options_.nesterov},
           flat);
    u = orthogonalise(std::move(u), options_);
    launch("muon", {inout(w), in(u), in(t.control)},
           kernels::MuonParams{.offset = {},
                               .n = n,
                               .lr = t.learning_rate,
                               .weight_decay = t.weight_decay,
                               .ratio = ratio(rows, cols)},
           flat);
  }

  float ratio(int64_t rows, int64_t cols) const {
    const auto a = static_cast<double>(rows), b = static_cast<double>(cols);
    if (options_.adjust_lr == MuonRate::match_rms_adamw)
      return static_cast<float>(0.2 * std::sqrt(std::max(a, b)));
    return static_cast<float>(std::sqrt(std::max(1.0, a / b)));
  }

  MuonOptions options_;
  std::unique_ptr<UpdateRule> adamw_;
  size_t groups_;
};

// The groups of the matrices, then the other groups, whose AdamW rates are relative to Muon's.
std::vector<ParameterGroup> join(std::vector<ParameterGroup> matrices,
                                 std::vector<ParameterGroup> others, const MuonOptions& options,
                                 const AdamWOptions& adamw) {
  for (ParameterGroup& group : others) {
    if (options.lr > 0) group.lr_scale *= adamw.lr / options.lr;  // 0 is refused by the rule
    if (!group.weight_decay) group.weight_decay = adamw.weight_decay;
    matrices.push_back(std::move(group));
  }
  return matrices;
}

}  // namespace

Muon::Muon(std::vector<Tensor> matrices, const MuonOptions& options, std::vector<Tensor> others,
           const AdamWOptions& adamw)
    : Muon(one_group(std::move(matrices)), options, one_group(std::move(others)), adamw) {}

Muon::Muon(std::vector<ParameterGroup> matrices, const MuonOptions& options,
           std::vector<ParameterGroup> others, const AdamWOptions& adamw)
    : Optimizer(join(matrices, std::move(others), options, adamw),
                std::make_unique<MuonRule>(options, adamw, matrices.size())) {}

}  // namespace rw
