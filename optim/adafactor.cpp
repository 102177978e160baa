#include "optim/adafactor.h"

#include "ops/ops.h"
#include "optim/base/update_rule.h"

namespace rw {

namespace {

// The longest row or column that the kernels' loops can handle on every device.
constexpr int64_t longest = 1 << 17;

bool is_factored(const Tensor& p) {
  return p.rank() >= 2 && p.size(-1) <= longest && p.size(-2) <= longest;
}

class AdafactorRule : public UpdateRule {
 public:
  explicit AdafactorRule(const AdafactorOptions& options) : options_(options) {
    check_rates("adafactor", options.lr, options.weight_decay);
    check(options.beta2_decay <= 0, "adafactor", "beta2_decay must be <= 0, got {}",
          options.beta2_decay);
    check(options.eps1 >= 1e-18f && options.eps2 >= 0, "adafactor",
          "eps1 must be >= 1e-18 (it is squared) and eps2 >= 0, got {} and {}", options.eps1,
          options.eps2);
    check(options.clip > 0, "adafactor", "clip must be positive, got {}", options.clip);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override {
    return {"row_var", "col_var", "variance"};
  }

  std::optional<Shape> state_shape(size_t state, const Tensor& parameter, size_t) const override {
    if (is_factored(parameter) != (state < 2)) return {};
    Shape shape = parameter.shape();
    if (state == 0) shape[shape.rank() - 1] = 1;
    if (state == 1) shape[shape.rank() - 2] = 1;
    return shape;
  }

  void update(const Target& t) const override {
    const PurposeScope purpose(Purpose::workspace);
    const NoGrad guard;
    for (const FlatParameters::Slot& slot : t.slots) {
      if (!slot.parameter.grad().defined() || slot.parameter.numel() == 0) continue;
      if (is_factored(slot.parameter)) {
        const Tensor rows = t.state(slot, 0), cols = t.state(slot, 1);
        const Tensor mean = move_moments(t, slot, rows, cols);
        apply(t, slot, rows, cols, mean, true);
      } else {
        const Tensor variance = t.state(slot, 2);
        apply(t, slot, variance, variance, variance, false);
      }
    }
  }

 private:
  // Updates the moments of rows and columns; returns the means of the rows' moments.
  Tensor move_moments(const Target& t, const FlatParameters::Slot& slot, const Tensor& row_var,
                      const Tensor& col_var) const {
    const Tensor& parameter = slot.parameter;
    const Tensor& grad = parameter.grad();
    const int64_t rows = parameter.size(-2), cols = parameter.size(-1),
                  matrices = parameter.numel() / (rows * cols),
                  chunks = (rows + ADAFACTOR_ROWS - 1) / ADAFACTOR_ROWS;
    const auto u = [](int64_t n) { return count32(n, "adafactor"); };
    const Tensor partial =
        empty({matrices, chunks, cols}, DType::f32, parameter.device().shared_from_this());
    const kernels::AdafactorParams p{.offset = {},
                                     .matrices = u(matrices),
                                     .rows = u(rows),
                                     .cols = u(cols),
                                     .chunks = u(chunks),
                                     .own = t.chunk(slot),
                                     .beta2_decay = options_.beta2_decay};
    launch("adafactor_rows", {in(grad), inout(row_var), in(t.control)}, p,
           {.threads = {u(matrices * rows), 1, 1}});
    launch("adafactor_columns", {in(grad), out(partial)}, p,
           {.threads = {u(partial.numel()), 1, 1}});
    launch("adafactor_combine", {in(partial), inout(col_var), in(t.control)}, p,
           {.threads = {u(col_var.numel()), 1, 1}});
    return sum(affine(row_var, 1.0f / static_cast<float>(rows), 0), {-2, -1});  // within range
  }

  void apply(const Target& t, const FlatParameters::Slot& slot, const Tensor& row_var,
             const Tensor& col_var, const Tensor& mean, bool factored) const {
    const Tensor parameter = t.master(slot), grad = slot.parameter.grad();
    const auto u = [](int64_t n) { return count32(n, "adafactor"); };
    const int64_t n = parameter.numel(), chunks = (n + ADAFACTOR_CHUNK - 1) / ADAFACTOR_CHUNK;
    const Tensor partial = empty({2, chunks}, DType::f32, parameter.device().shared_from_this());
    const uint32_t flags = (options_.relative_step ? ADAFACTOR_RELATIVE : 0) |
                           (options_.scale_parameter ? ADAFACTOR_SCALED : 0);
    const kernels::AdafactorParams p{.offset = {},
                                     .n = u(n),
                                     .rows = u(factored ? parameter.size(-2) : 1),
                                     .cols = u(factored ? parameter.size(-1) : 1),
                                     .chunks = u(chunks),
                                     .own = t.chunk(slot),
                                     .lr = t.learning_rate,
                                     .weight_decay = t.weight_decay,
                                     .beta2_decay = options_.beta2_decay,
                                     .eps1 = options_.eps1,
                                     .eps2 = options_.eps2,
                                     .clip = options_.clip,
                                     .flags = flags};
    const Launch how{.threads = {p.chunks, 1, 1}, .variant = {factored}};
    launch("adafactor_norms",
           {in(parameter), in(grad), inout(row_var), in(col_var), in(mean), in(t.control),
            out(partial)},
           p, how);
    launch("adafactor",
           {inout(parameter), in(grad), in(row_var), in(col_var), in(mean), in(t.control),
            in(partial)},
           p, how);
  }

  AdafactorOptions options_;
};

}  // namespace

Adafactor::Adafactor(std::vector<Tensor> parameters, const AdafactorOptions& options)
    : Adafactor(one_group(std::move(parameters)), options) {}

Adafactor::Adafactor(std::vector<ParameterGroup> groups, const AdafactorOptions& options)
    : Optimizer(std::move(groups), std::make_unique<AdafactorRule>(options)) {}

}  // namespace rw
