#include "optim/adam8bit.h"

#include "core/blocks/block_type.h"
#include "core/tensor/launch.h"
#include "optim/base/update_rule.h"

namespace rw {

namespace {

enum State : size_t { mean, squares, mean_codes, mean_absmax, square_codes, square_absmax };

bool is_quantised(const Tensor& parameter) {
  return parameter.numel() >= least_8bit_elements;
}

// Both maps, each followed by its bounds, as the kernel reads them.
std::vector<float> all_maps() {
  std::vector<float> all;
  for (const bool is_signed : {true, false}) {
    const std::array<float, 256> map = dynamic_map(is_signed), bounds = dynamic_bounds(map);
    all.insert(all.end(), map.begin(), map.end());
    all.insert(all.end(), bounds.begin(), bounds.end());
  }
  return all;
}

class Adam8bitRule : public UpdateRule {
 public:
  Adam8bitRule(const AdamOptions& options, bool decoupled, std::unique_ptr<UpdateRule> small)
      : options_(options), decoupled_(decoupled), small_(std::move(small)) {
    check(!options.amsgrad, "adam8bit", "amsgrad needs f32 moments: use Adam or AdamW");
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override {
    return {"exp_avg",        "exp_avg_sq",       "exp_avg_codes",
            "exp_avg_absmax", "exp_avg_sq_codes", "exp_avg_sq_absmax"};
  }

  std::optional<Shape> state_shape(size_t state, const Tensor& parameter, size_t) const override {
    if (is_quantised(parameter) != (state >= mean_codes)) return {};
    if (state != mean_absmax && state != square_absmax) return parameter.shape();
    const auto n = static_cast<uint64_t>(parameter.numel());
    return Shape{static_cast<int64_t>(blocks::dynamic.block_count(n))};
  }

  int64_t unit(size_t) const override { return blocks::dynamic.elements; }

  DType state_dtype(size_t state) const override {
    return state == mean_codes || state == square_codes ? DType::u8 : DType::f32;
  }

  void prepare(const GradientTable& gradients) override {
    const PurposeScope purpose(Purpose::optimizer);
    const std::vector<float> maps = all_maps();
    maps_ = empty({static_cast<int64_t>(maps.size())}, DType::f32,
                  gradients.table().device().shared_from_this());
    maps_.copy_from(std::span<const float>(maps));
  }

  // All parameters of a run have the same states.
  void update(const Target& t) const override {
    if (!is_quantised(t.slots.front().parameter)) {
      Target small = t;
      small.states.resize(mean_codes);
      return small_->update(small);
    }
    for (const FlatParameters::Slot& slot : t.slots)
      if (slot.part.grad().defined()) update_one(t, slot);
  }

 private:
  void update_one(const Target& t, const FlatParameters::Slot& slot) const {
    const Tensor codes = t.state(slot, mean_codes), absmax = t.state(slot, mean_absmax),
                 square_code = t.state(slot, square_codes),
                 square_most = t.state(slot, square_absmax);
    const kernels::Adam8bitParams p{.offset = {},
                                    .n = count32(codes.numel(), "adam8bit"),
                                    .own = t.chunk(slot),
                                    .lr = t.learning_rate,
                                    .beta1 = options_.beta1,
                                    .beta2 = options_.beta2,
                                    .eps = options_.eps,
                                    .weight_decay = t.weight_decay,
                                    .decoupled = decoupled_};
    launch("adam_8bit",
           {inout(t.master(slot)), in(slot.part.grad()), inout(codes), inout(square_code),
            inout(absmax), inout(square_most), in(maps_), in(t.control)},
           p, {.threads = {count32(absmax.numel(), "adam8bit"), 1, 1}});
  }

  AdamOptions options_;
  bool decoupled_;
  std::unique_ptr<UpdateRule> small_;
  Tensor maps_;  // f32 [1024]
};

std::unique_ptr<UpdateRule> adam8bit_rule(const AdamOptions& options) {
  return std::make_unique<Adam8bitRule>(options, false, adam_rule(options));
}

std::unique_ptr<UpdateRule> adamw8bit_rule(const AdamWOptions& o) {
  const AdamOptions options{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad};
  return std::make_unique<Adam8bitRule>(options, true, adamw_rule(o));
}

}  // namespace

Adam8bit::Adam8bit(std::vector<Tensor> parameters, const AdamOptions& options)
    : Adam8bit(one_group(std::move(parameters)), options) {}

Adam8bit::Adam8bit(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Optimizer(std::move(groups), adam8bit_rule(options)) {}

AdamW8bit::AdamW8bit(std::vector<Tensor> parameters, const AdamWOptions& options)
    : AdamW8bit(one_group(std::move(parameters)), options) {}

AdamW8bit::AdamW8bit(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Optimizer(std::move(groups), adamw8bit_rule(options)) {}

}  // namespace rw
