// LSTM and GRU over a sequence: one record per layer and direction. A step is a matrix product and
// a cell kernel; backward collects the gates' gradients of all steps, so that the gradient of the
// recurrent weight is one product.
#include "ops/detail.h"
#include "ops/matmul.h"

namespace rw {

using namespace detail;

namespace {

struct RecurrentAttrs {
  bool reverse;
};

uint32_t recurrent32(int64_t n) {
  return count32(n, "recurrent");
}

// Step t of [T, N, ...]: a view.
Tensor step(const Tensor& whole, int64_t t) {
  const Shape shape(std::span(whole.shape().begin() + 1, whole.shape().end()));
  return make_view(whole, shape, dense_strides(shape), whole.impl().offset + t * shape.numel());
}

Tensor zeros_on(const Tensor& like, const Shape& shape, DType dtype) {
  return full(shape, 0, dtype, like.device().shared_from_this());
}

// The variant and the threads of a cell kernel over [rows, hidden].
Launch cell_launch(int64_t rows, int64_t hidden, std::initializer_list<const Tensor*> tensors) {
  bool whole = hidden % 4 == 0;
  for (const Tensor* t : tensors) whole = whole && t->impl().offset % 4 == 0;
  return {.threads = {recurrent32(rows * hidden / (whole ? 4 : 1)), 1, 1}, .variant = {whole}};
}

// Inputs: gates, weight_hh, bias_hh, h0 and, of an LSTM, c0.
struct Sizes {
  int64_t steps, rows, hidden;
};
Sizes sizes_of(const Shape& gates, const Shape& h0) {
  return {gates[0], gates[1], h0[1]};
}

// The steps in the order in which the network processes them.
int64_t nth(const Sizes& s, bool reverse, int64_t i) {
  return reverse ? s.steps - 1 - i : i;
}

// The outputs are y, the last c, c of every step in the gates' dtype (the network itself continues
// with the f32 one), and the activations [T, N, 4 H].
std::vector<Tensor> lstm_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const bool reverse = std::any_cast<const RecurrentAttrs&>(attrs).reverse;
  const Tensor gates = contiguous(inputs[0]), bias = contiguous(inputs[2]);
  const Tensor weight = transpose(inputs[1], 0, 1);
  const Sizes s = sizes_of(gates.shape(), inputs[3].shape());
  Tensor y = empty_on(gates, {s.steps, s.rows, s.hidden}, gates.dtype());
  Tensor cells = empty_on(gates, y.shape(), gates.dtype());
  Tensor acts = empty_on(gates, {s.steps, s.rows, 4 * s.hidden}, gates.dtype());
  Tensor h = contiguous(inputs[3]), c = copy_of(inputs[4], DType::f32);
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = nth(s, reverse, i);
    const Tensor gx = step(gates, t), gh = gemm(h, weight, gates.dtype());
    const Tensor next_h = step(y, t);
    launch(
        "lstm_cell",
        {in(gx), in(gh), in(bias), inout(c), out(next_h), out(step(cells, t)), out(step(acts, t))},
        kernels::CellParams{.rows = recurrent32(s.rows), .hidden = recurrent32(s.hidden)},
        cell_launch(s.rows, s.hidden, {&gx, &bias, &c}));
    h = next_h;
  }
  return {std::move(y), std::move(c), std::move(cells), std::move(acts)};
}

// The state before every step, [T N, H]: y shifted by one step, with h0 where the network began.
Tensor states_before(const Tensor& y, const Tensor& h0, bool reverse) {
  const Tensor first = unsqueeze(h0, 0);
  const Tensor all = reverse ? concat({slice(y, 0, 1, y.size(0)), first}, 0)
                             : concat({first, slice(y, 0, 0, y.size(0) - 1)}, 0);
  return flatten(all, 0, 1);
}

// The gradients of weight_hh and bias_hh, from the gradients of the recurrent products, dgh [T, N,
// gates].
void parameter_gradients(const Record& r, const Tensor& dgh, std::vector<Tensor>& grads) {
  const Tensor rows = flatten(dgh, 0, 1);
  if (r.needs_grad(1)) {
    const Tensor before =
        states_before(r.output(0), r.input(3), r.attributes<RecurrentAttrs>().reverse);
    grads[1] = gemm(transpose(rows, 0, 1), before, DType::f32);
  }
  if (r.needs_grad(2)) grads[2] = sum_to(rows, {rows.size(1)});
}

std::vector<Tensor> lstm_vjp(Record& r, std::span<Tensor> dys) {
  const bool reverse = r.attributes<RecurrentAttrs>().reverse;
  const Tensor &y = r.output(0), &cells = r.output(2), &acts = r.output(3);
  const Tensor c0 = dense(to_dtype(r.input(4), cells.dtype())), weight = r.input(1);
  const Sizes s = sizes_of(r.inputs[0].shape, r.inputs[3].shape);
  const Tensor dy = dys[0].defined() ? contiguous(dys[0]) : zeros_on(y, y.shape(), y.dtype());
  Tensor dc = empty_on(y, {s.rows, s.hidden}, DType::f32);
  dys[1].defined() ? copy_into(dys[1], dc) : fill_(dc, 0);
  Tensor dh = zeros_on(y, {s.rows, s.hidden}, y.dtype());
  Tensor dgates = empty_on(y, {s.steps, s.rows, 4 * s.hidden}, y.dtype());
  for (int64_t i = s.steps - 1; i >= 0; --i) {
    const int64_t t = nth(s, reverse, i);
    const Tensor before = i > 0 ? step(cells, nth(s, reverse, i - 1)) : c0;
    const Tensor act = step(acts, t), dy_t = step(dy, t), dgate = step(dgates, t);
    launch("lstm_cell_grad",
           {in(act), in(before), in(step(cells, t)), in(dy_t), in(dh), inout(dc), out(dgate)},
           kernels::CellParams{.rows = recurrent32(s.rows), .hidden = recurrent32(s.hidden)},
           cell_launch(s.rows, s.hidden, {&before, &dy_t}));
    dh = gemm(dgate, weight, y.dtype());
  }
  std::vector<Tensor> grads(5);
  parameter_gradients(r, dgates, grads);
  grads[0] = std::move(dgates);
  grads[3] = std::move(dh);
  grads[4] = std::move(dc);
  return grads;
}

// Outputs y and activations [T, N, 4 H].
std::vector<Tensor> gru_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const bool reverse = std::any_cast<const RecurrentAttrs&>(attrs).reverse;
  const Tensor gates = contiguous(inputs[0]), bias = contiguous(inputs[2]);
  const Tensor weight = transpose(inputs[1], 0, 1);
  const Sizes s = sizes_of(gates.shape(), inputs[3].shape());
  Tensor y = empty_on(gates, {s.steps, s.rows, s.hidden}, gates.dtype());
  Tensor acts = empty_on(gates, {s.steps, s.rows, 4 * s.hidden}, gates.dtype());
  Tensor h = contiguous(inputs[3]);
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t t = nth(s, reverse, i);
    const Tensor gx = step(gates, t), gh = gemm(h, weight, gates.dtype()), next = step(y, t);
    launch("gru_cell", {in(gx), in(gh), in(bias), in(h), out(next), out(step(acts, t))},
           kernels::CellParams{.rows = recurrent32(s.rows), .hidden = recurrent32(s.hidden)},
           cell_launch(s.rows, s.hidden, {&gx, &bias, &h}));
    h = next;
  }
  return {std::move(y), std::move(acts)};
}

std::vector<Tensor> gru_vjp(Record& r, std::span<Tensor> dys) {
  const bool reverse = r.attributes<RecurrentAttrs>().reverse;
  const Tensor &y = r.output(0), &acts = r.output(1);
  const Tensor h0 = contiguous(r.input(3)), weight = r.input(1), dy = contiguous(dys[0]);
  const Sizes s = sizes_of(r.inputs[0].shape, r.inputs[3].shape);
  const Tensor carry = zeros_on(y, {s.rows, s.hidden}, DType::f32);
  Tensor dh = zeros_on(y, {s.rows, s.hidden}, y.dtype());
  Tensor dgx = empty_on(y, {s.steps, s.rows, 3 * s.hidden}, y.dtype());
  const Tensor dgh = empty_on(y, dgx.shape(), y.dtype());
  for (int64_t i = s.steps - 1; i >= 0; --i) {
    const int64_t t = nth(s, reverse, i);
    const Tensor before = i > 0 ? step(y, nth(s, reverse, i - 1)) : h0;
    const Tensor act = step(acts, t), dy_t = step(dy, t), dgh_t = step(dgh, t);
    launch("gru_cell_grad",
           {in(act), in(before), in(dy_t), in(dh), inout(carry), out(step(dgx, t)), out(dgh_t)},
           kernels::CellParams{.rows = recurrent32(s.rows), .hidden = recurrent32(s.hidden)},
           cell_launch(s.rows, s.hidden, {&before, &dy_t}));
    dh = gemm(dgh_t, weight, y.dtype());
  }
  std::vector<Tensor> grads(4);
  parameter_gradients(r, dgh, grads);
  grads[0] = std::move(dgx);
  grads[3] = cast(add(wide(std::move(dh)), carry), y.dtype());
  return grads;
}

// Saved: weight_hh, the first state(s), and every output but the last c.
const Op lstm_op = {.name = "lstm",
                    .forward = lstm_forward,
                    .vjp = lstm_vjp,
                    .saves = saves_always<1 << 1 | 1 << 3 | 1 << 4, 1 | 1 << 2 | 1 << 3>,
                    .is_heavy = true};
const Op gru_op = {.name = "gru",
                   .forward = gru_forward,
                   .vjp = gru_vjp,
                   .saves = saves_always<1 << 1 | 1 << 3, 3>,
                   .is_heavy = true};

// Checks the op's first four inputs; `count` is the number of gates.
TensorList check_inputs(const char* op, int64_t count, Tensor gates, Tensor weight, Tensor bias,
                        Tensor h0) {
  const AutocastInputs autocast(op, {&gates, &weight});
  h0 = cast(std::move(h0), gates.dtype());
  check_float(gates, op);
  check<ShapeError>(gates.rank() == 3 && gates.shape()[0] > 0 && h0.rank() == 2 &&
                        gates.shape()[1] == h0.shape()[0] &&
                        gates.shape()[2] == count * h0.shape()[1],
                    op, "needs gates [T, N, {} H] and h0 [N, H], got {} and {}", count, gates, h0);
  const int64_t width = gates.shape()[2];
  check<ShapeError>(weight.shape() == Shape{width, h0.shape()[1]}, op,
                    "weight_hh must be [{} H, H], got {} for h0 {}", count, weight, h0);
  check<DTypeError>(weight.dtype() == gates.dtype(), op,
                    "gates and weight_hh must have one dtype, got {} and {}", gates, weight);
  if (!bias.defined()) bias = zeros_on(gates, {width}, DType::f32);
  check<ShapeError>(bias.shape() == Shape{width} && is_float(bias.dtype()), op,
                    "bias_hh must be float [{} H], got {}", count, bias);
  bias = cast(std::move(bias), DType::f32);
  return {std::move(gates), std::move(weight), std::move(bias), std::move(h0)};
}

}  // namespace

LstmResult lstm(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, Tensor c0,
                bool reverse) {
  TensorList inputs =
      check_inputs("lstm", 4, std::move(gates), std::move(weight_hh), std::move(bias_hh), h0);
  check<ShapeError>(c0.shape() == h0.shape() && c0.dtype() == DType::f32, "lstm",
                    "c0 must be f32 of h0's shape, got {} and {}", c0, h0);
  inputs.push_back(std::move(c0));
  std::vector<Tensor> outputs = apply(lstm_op, RecurrentAttrs{reverse}, std::move(inputs));
  return {std::move(outputs[0]), std::move(outputs[1])};
}

Tensor gru(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, bool reverse) {
  return apply1(gru_op, RecurrentAttrs{reverse},
                check_inputs("gru", 3, std::move(gates), std::move(weight_hh), std::move(bias_hh),
                             std::move(h0)));
}

}  // namespace rw
