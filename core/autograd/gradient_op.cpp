#include "core/autograd/gradient_op.h"

#include "core/tensor/launch.h"
#include "core/tensor/primitives.h"

namespace rw {

namespace {

struct GradientAttrs {
  std::shared_ptr<const Record> of;  // without values
  std::vector<bool> has_dy;          // by output of that record
  // The inputs whose gradients are the outputs: every run writes the same.
  std::shared_ptr<std::vector<size_t>> made;
};

const GradientAttrs& gradient_attrs(const Record& gradient) {
  return gradient.attributes<GradientAttrs>();
}

// The number of values that the vjp reads, which come before dy.
uint32_t count_of_values(const Record& of) {
  uint32_t count = 0;
  each_saved(of, [&](const Edge&) { ++count; });
  return count;
}

Edges without_values(const Edges& edges) {
  Edges bare;
  for (const Edge& edge : edges) {
    Edge& copy = bare.emplace_back();
    copy.shape = edge.shape;
    copy.dtype = edge.dtype;
    copy.requires_grad = edge.requires_grad;
  }
  return bare;
}

std::shared_ptr<Record> without_values(const Record& record) {
  const auto bare = std::make_shared<Record>();
  bare->op = record.op;
  bare->attrs = record.attrs;
  bare->saves = record.saves;
  bare->inputs = without_values(record.inputs);
  bare->outputs = without_values(record.outputs);
  bare->is_for_leaves = false;
  return bare;
}

// Inputs: the values that the vjp reads, and the dy that there are. Outputs: the gradients that it
// makes of the inputs that need one.
std::vector<Tensor> gradient_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const GradientAttrs&>(attrs);
  Record record = *a.of;
  const OpScope scope(record.op->name);
  size_t next = 0;
  each_saved(record, [&](Edge& edge) { edge.saved = Saved::of(inputs[next++]); });
  std::vector<Tensor> dy(a.has_dy.size()), made;
  for (size_t k = 0; k < dy.size(); ++k)
    if (a.has_dy[k]) dy[k] = inputs[next++];
  std::vector<Tensor> dx = record.op->vjp(record, dy);
  a.made->clear();
  for (size_t k = 0; k < dx.size() && k < record.inputs.size(); ++k) {
    if (!record.inputs[k].requires_grad || !dx[k].defined()) continue;
    a.made->push_back(k);
    made.push_back(std::move(dx[k]));
  }
  check<AutogradError>(!made.empty(), record.op->name,
                       "the vjp must make a gradient of an input that needs one");
  return made;
}

std::vector<Tensor> gradient_vjp(Record& gradient, std::span<Tensor> g) {
  SecondOrder second(gradient, g);
  gradient_attrs(gradient).of->op->second(second);
  return second.take();
}

// Linear ops need no dy for the gradient of dy.
Saves gradient_saves(const std::any& attrs, uint32_t) {
  const auto& a = std::any_cast<const GradientAttrs&>(attrs);
  uint32_t count = count_of_values(*a.of);
  if (a.of->op->second != linear_second)
    for (const bool has : a.has_dy) count += has;
  check<AutogradError>(count < 32, a.of->op->name,
                       "a gradient can be differentiated if it reads less than 32 values, got {}",
                       count);
  return {.inputs = (uint32_t{1} << count) - 1};
}

const Op gradient_op = {.name = "gradient",
                        .forward = gradient_forward,
                        .vjp = gradient_vjp,
                        .saves = gradient_saves,
                        .records_vjp = true};

// Returns a gradient per input.
std::vector<Tensor> run_gradient(std::shared_ptr<const Record> of, std::vector<Tensor> values,
                                 std::span<const Tensor> dy) {
  GradientAttrs attrs{std::move(of), {}, std::make_shared<std::vector<size_t>>()};
  for (const Tensor& t : dy) {
    attrs.has_dy.push_back(t.defined());
    if (t.defined()) values.push_back(t);
  }
  const auto made = attrs.made;
  std::vector<Tensor> all(attrs.of->inputs.size());
  std::vector<Tensor> gradients = apply(gradient_op, std::move(attrs), std::move(values));
  for (size_t i = 0; i < gradients.size(); ++i) all[(*made)[i]] = std::move(gradients[i]);
  return all;
}

std::vector<Tensor> cast_forward(const std::any& attrs, std::span<Tensor> inputs) {
  return {copy_of(inputs[0], std::any_cast<DType>(attrs))};
}

std::vector<Tensor> cast_vjp(Record& r, std::span<Tensor> dy) {
  return {recorded_cast(std::exchange(dy[0], {}), r.inputs[0].dtype)};
}

// Adds gradients of one shape. Its own gradient is cast where backward passes it on.
const Op sum_op = {.name = "add",
                   .forward = [](const std::any&, std::span<Tensor> inputs) -> std::vector<Tensor> {
                     return {sum_of(inputs[0], inputs[1])};
                   },
                   .vjp = [](Record&, std::span<Tensor> dy) -> std::vector<Tensor> {
                     return {dy[0], dy[0]};
                   },
                   .any_grad_dtype = true,
                   .records_vjp = true};

}  // namespace

const Op cast_op = {.name = "cast",
                    .forward = cast_forward,
                    .vjp = cast_vjp,
                    .any_grad_dtype = true,
                    .passes_gradient = true,
                    .records_vjp = true};

Tensor recorded_cast(Tensor x, DType dtype) {
  return x.dtype() == dtype ? x : apply1(cast_op, dtype, std::move(x));
}

Tensor recorded_sum(Tensor a, Tensor b) {
  return apply1(sum_op, {}, std::move(a), std::move(b));
}

std::vector<Tensor> recorded_vjp(const Record& record, std::span<const Tensor> dy) {
  std::vector<Tensor> values;
  for (size_t k = 0; k < record.inputs.size(); ++k)
    if (record.saves.input(k)) values.push_back(record.input(static_cast<int>(k)));
  for (size_t k = 0; k < record.outputs.size(); ++k)
    if (record.saves.output(k)) values.push_back(record.output(static_cast<int>(k)));
  return run_gradient(without_values(record), std::move(values), dy);
}

Tensor recorded_gradient(const Op& op, std::any attrs, const Tensor& input, const Tensor& dy) {
  const auto of = std::make_shared<Record>();
  of->op = &op;
  of->attrs = std::move(attrs);
  of->saves = {.inputs = 1};
  Edge& x = of->inputs.emplace_back();
  x.shape = input.shape(), x.dtype = input.dtype(), x.requires_grad = true;
  Edge& y = of->outputs.emplace_back();
  y.shape = dy.shape(), y.dtype = dy.dtype(), y.requires_grad = true;
  of->is_for_leaves = false;
  return run_gradient(of, {input}, {&dy, 1})[0];
}

SecondOrder::SecondOrder(Record& gradient, std::span<Tensor> g)
    : gradient_(gradient),
      of_(gradient_attrs(gradient).of.get()),
      inputs_(of_->inputs.size(), -1),
      outputs_(of_->outputs.size(), -1),
      dys_(of_->outputs.size(), -1),
      g_(of_->inputs.size()),
      gradients_(gradient.inputs.size()) {
  const GradientAttrs& a = gradient_attrs(gradient);
  int next = 0;
  for (size_t k = 0; k < inputs_.size(); ++k)
    if (of_->saves.input(k)) inputs_[k] = next++;
  for (size_t k = 0; k < outputs_.size(); ++k)
    if (of_->saves.output(k)) outputs_[k] = next++;
  for (size_t k = 0; k < dys_.size(); ++k)
    if (a.has_dy[k]) dys_[k] = next++;
  for (size_t k = 0; k < g.size(); ++k) g_[(*a.made)[k]] = g[k];
}

int SecondOrder::slot_of(const Slots& slots, int i) const {
  const auto k = static_cast<size_t>(i);
  check<AutogradError>(k < slots.size() && slots[k] >= 0, of_->op->name,
                       "the gradient of the gradient reads value {}, which the vjp does not", i);
  return slots[k];
}

Tensor SecondOrder::dy(int i) const {
  const int slot = dys_[static_cast<size_t>(i)];
  return slot < 0 ? Tensor() : gradient_.input(slot);
}

Tensor SecondOrder::g(int i) const {
  return g_[static_cast<size_t>(i)];
}

bool SecondOrder::needs(const Slots& slots, int i) const {
  const int slot = slots[static_cast<size_t>(i)];
  return slot >= 0 && gradient_.needs_grad(slot);
}

void SecondOrder::give(const Slots& slots, int i, Tensor gradient) {
  if (needs(slots, i))
    gradients_[static_cast<size_t>(slots[static_cast<size_t>(i)])] = std::move(gradient);
}

Tensor SecondOrder::again(int i, const std::vector<Tensor>& inputs,
                          const std::vector<Tensor>& dy) const {
  const auto of = without_values(*of_);
  for (size_t k = 0; k < of->inputs.size(); ++k)
    of->inputs[k].requires_grad = k == static_cast<size_t>(i);
  of->saves = of->op->saves(of->attrs, uint32_t{1} << i);
  std::vector<Tensor> values, dys;
  for (size_t k = 0; k < of->inputs.size(); ++k) {
    if (!of->saves.input(k)) continue;
    const bool is_given = k < inputs.size() && inputs[k].defined();
    values.push_back(is_given ? recorded_cast(inputs[k], of->inputs[k].dtype)
                              : input(static_cast<int>(k)));
  }
  for (size_t k = 0; k < of->outputs.size(); ++k) {
    if (of->saves.output(k)) values.push_back(output(static_cast<int>(k)));
    dys.push_back(k < dy.size() && dy[k].defined() ? recorded_cast(dy[k], of->outputs[k].dtype)
                                                   : this->dy(static_cast<int>(k)));
  }
  return run_gradient(of, std::move(values), dys)[static_cast<size_t>(i)];
}

void linear_second(SecondOrder& s) {
  const Record& of = s.of();
  Tensor some;
  for (size_t k = 0; k < of.inputs.size(); ++k)
    if (!some.defined()) some = s.g(static_cast<int>(k));
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < of.inputs.size(); ++k) {
    const int i = static_cast<int>(k);
    const Edge& x = of.inputs[k];
    if (of.saves.input(k))
      inputs.push_back(s.input(i));
    else
      inputs.push_back(s.g(i).defined()
                           ? recorded_cast(s.g(i), x.dtype)
                           : full(x.shape, 0, x.dtype, some.device().shared_from_this()));
  }
  std::vector<Tensor> outputs = apply(*of.op, of.attrs, std::move(inputs));
  for (size_t k = 0; k < outputs.size(); ++k) s.give_dy(std::move(outputs[k]), static_cast<int>(k));
}

void bilinear_second(SecondOrder& s) {
  const Record& of = s.of();
  const auto factor = [&](int i) {  // the gradient of the gradient of input i
    return s.g(i).defined() ? recorded_cast(s.g(i), of.inputs[static_cast<size_t>(i)].dtype)
                            : Tensor();
  };
  const Tensor g0 = factor(0), g1 = factor(1);
  if (s.needs_dy()) {
    Tensor ddy;
    if (g0.defined()) ddy = apply1(*of.op, of.attrs, g0, s.input(1));
    if (g1.defined()) {
      Tensor other = apply1(*of.op, of.attrs, s.input(0), g1);
      ddy = ddy.defined() ? recorded_sum(std::move(ddy), std::move(other)) : std::move(other);
    }
    s.give_dy(std::move(ddy));
  }
  if (s.needs_input(0) && g1.defined()) s.give_input(0, s.again(0, {Tensor(), g1}, {}));
  if (s.needs_input(1) && g0.defined()) s.give_input(1, s.again(1, {g0}, {}));
}

}  // namespace rw
