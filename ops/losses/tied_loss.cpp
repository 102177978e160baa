// Cross entropy over a vocabulary, through the embedding table, without the logits of all rows in
// memory.
#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/layout/index.h"
#include "ops/layout/indexing.h"
#include "ops/losses/class_losses.h"
#include "ops/losses/losses.h"
#include "ops/network/block_matrix.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

struct TiedAttrs {
  float smoothing;
  int ignore_index;
  int64_t chunk;  // rows
  bool has_bias, predict;
  const BlockType* blocks;  // of the table; null: it has floats
};

// The table, as a factor.
struct TiedTable {
  Tensor values;
  const BlockType* blocks;

  BlockMatrix matrix() const { return {values, *blocks}; }
  int64_t classes() const { return blocks ? matrix().rows() : values.shape()[0]; }

  // logits = hidden @ table^T, and dhidden = dlogits @ table.
  void multiply(const Tensor& hidden, const Tensor& logits) const {
    if (blocks)
      multiply_blocks(hidden, matrix(), logits);
    else
      multiply_into(hidden, transpose(values, 0, 1), logits);
  }
  void multiply_back(const Tensor& dlogits, const Tensor& dhidden) const {
    if (blocks)
      multiply_blocks_back(dlogits, matrix(), dhidden);
    else
      multiply_into(dlogits, values, dhidden);
  }
};

// The tensors that forward and gradient read, and how many rows they handle at a time.
struct TiedProblem {
  const TiedAttrs& attrs;
  Tensor hidden, bias, target;
  TiedTable table;

  template <class F>
  TiedProblem(const TiedAttrs& a, const F& input)
      : attrs(a),
        hidden(contiguous(input(0))),
        bias(a.has_bias ? Tensor(input(3)) : Tensor()),
        target(contiguous(input(2))),
        table{contiguous(input(1)), a.blocks} {}

  int64_t rows() const { return hidden.shape()[0]; }
  int64_t classes() const { return table.classes(); }

  // body(part, logits) for each chunk in order; part(t) is the chunk's rows of t.
  template <class F>
  void for_each_chunk(const F& body) const {
    for (int64_t begin = 0; begin < rows(); begin += attrs.chunk) {
      const int64_t end = std::min(rows(), begin + attrs.chunk);
      const auto part = [=](const Tensor& t) { return slice(t, 0, begin, end); };
      Tensor logits = empty_on(hidden, {end - begin, classes()}, hidden.dtype());
      table.multiply(part(hidden), logits);
      if (bias) logits = add(std::move(logits), bias);
      body(part, logits);
    }
  }

  // Parameters of the kernels that look at `logits`.
  kernels::ClassLossParams params(const Tensor& logits) const {
    return {.offset = {},
            .rows = count32(logits.shape()[0], "tied_cross_entropy"),
            .cols = count32(logits.shape()[1], "tied_cross_entropy"),
            .smoothing = attrs.smoothing,
            .ignore_index = attrs.ignore_index};
  }
};

// Loss and log-sum-exp per row, and the predicted classes when asked for.
std::vector<Tensor> tied_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const TiedAttrs&>(attrs);
  const TiedProblem problem(a, [&](int i) -> const Tensor& { return inputs[i]; });
  std::vector<Tensor> outputs;
  for (const DType dtype : {DType::f32, DType::f32, DType::i32})
    if (dtype == DType::f32 || a.predict)
      outputs.push_back(empty_on(problem.hidden, {problem.rows()}, dtype));
  problem.for_each_chunk([&](const auto& part, const Tensor& logits) {
    const Tensor target = part(problem.target), loss = part(outputs[0]), lse = part(outputs[1]);
    const auto params = problem.params(logits);
    launch("cross_entropy", {in(logits), in(target), out(loss), out(lse)}, params,
           {.threads = {params.rows, 1, 1}});
    if (a.predict) copy_into(argmax(logits), part(outputs[2]));
  });
  return outputs;
}

std::vector<Tensor> tied_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<TiedAttrs>();
  const TiedProblem problem(a, [&](int i) -> const Tensor& { return r.input(i); });
  const Tensor dloss = contiguous(dys[0]);
  Tensor dhidden, dtable = r.needs_grad(1) ? r.gradient_so_far(1) : Tensor(), dbias;
  if (r.needs_grad(0)) dhidden = empty_on(dloss, problem.hidden.shape(), problem.hidden.dtype());
  problem.for_each_chunk([&](const auto& part, const Tensor& logits) {
    const Tensor target = part(problem.target), lse = part(r.output(1)), dloss_part = part(dloss);
    const Tensor& dlogits = logits;  // overwritten
    launch("cross_entropy_grad", {in(logits), in(target), in(lse), in(dloss_part), out(dlogits)},
           problem.params(logits), {.threads = {flat_threads(logits.numel()), 1, 1}});
    if (r.needs_grad(0)) problem.table.multiply_back(dlogits, part(dhidden));
    if (r.needs_grad(1)) {
      const bool adds = dtable.defined();
      if (!adds) dtable = empty_on(dloss, problem.table.values.shape(), DType::f32);
      multiply_into(transpose(dlogits, 0, 1), part(problem.hidden), dtable, 1, adds);
    }
    if (a.has_bias && r.needs_grad(3)) {
      const Tensor sum = cast(sum_to(dlogits, {problem.classes()}), DType::f32);
      if (dbias)
        accumulate(sum, dbias);
      else
        dbias = sum;
    }
  });
  std::vector<Tensor> gradients = {std::move(dhidden), std::move(dtable), Tensor()};
  if (a.has_bias) gradients.push_back(std::move(dbias));
  return gradients;
}

// The gradient of row i's logits z = h W^T + b is dy_i (softmax(z_i) - target_i). Unlike the loss
// and its gradient, this has the logits of all rows in memory.
void tied_second(SecondOrder& s) {
  const auto& a = s.attributes<TiedAttrs>();
  const auto f32 = [](Tensor t) { return t ? wide(std::move(t)) : Tensor(); };
  const Tensor h = wide(s.input(0)), w = wide(s.input(1)), target = s.input(2),
               b = a.has_bias ? wide(s.input(3)) : Tensor();
  const auto by_table = [&](const Tensor& x, const Tensor& bias) {
    return a.blocks ? linear(x, BlockMatrix(w, *a.blocks), bias) : linear(x, w, bias);
  };
  const Tensor gh = f32(s.g(0)), gw = f32(s.g(1)), gb = a.has_bias ? f32(s.g(3)) : Tensor();
  const auto add_to = [](Tensor& sum, Tensor x) { sum = sum ? sum + x : std::move(x); };

  const Tensor is_ignored = target == static_cast<float>(a.ignore_index);
  const Tensor counts = unsqueeze(cast(is_ignored == 0, DType::f32), 1);
  const Tensor scale = unsqueeze(s.dy(), 1) * counts, p = softmax(by_table(h, b));
  const int64_t classes = p.size(1);
  const Tensor hits = one_hot(masked_fill(target, is_ignored, 0), classes);
  const Tensor miss = p - hits * (1 - a.smoothing) - a.smoothing / static_cast<float>(classes);
  Tensor dz;  // g, as a change of the logits
  if (gh) add_to(dz, by_table(gh, {}));
  if (gw) add_to(dz, linear(h, gw));
  if (gb) add_to(dz, expand(gb, p.shape()));
  const Tensor by_logits = scale * p * (dz - sum(p * dz, {1}, true)), slope = scale * miss;

  s.give_dy(sum(counts * miss * dz, {1}));
  if (s.needs_input(0)) {
    Tensor dh = a.blocks ? matmul(by_logits, BlockMatrix(w, *a.blocks)) : matmul(by_logits, w);
    if (gw) add_to(dh, matmul(slope, gw));
    s.give_input(0, std::move(dh));
  }
  if (s.needs_input(1)) {
    Tensor dw = matmul(transpose(by_logits, 0, 1), h);
    if (gh) add_to(dw, matmul(transpose(slope, 0, 1), gh));
    s.give_input(1, std::move(dw));
  }
  if (a.has_bias) s.give_input(3, sum(by_logits, {0}));
}

Saves tied_saves(const std::any& attrs, uint32_t) {
  return {std::any_cast<const TiedAttrs&>(attrs).has_bias ? 15u : 7u, 2};
}

const Op tied_op = {.name = "tied_cross_entropy",
                    .forward = tied_forward,
                    .vjp = tied_vjp,
                    .saves = tied_saves,
                    .is_heavy = true,
                    .second = tied_second};
// The same with a table in blocks.
const Op tied_blocks_op = {.name = "tied_cross_entropy_blocks",
                           .forward = tied_forward,
                           .vjp = tied_vjp,
                           .saves = tied_saves,
                           .is_heavy = true,
                           .second = tied_second};

// `table` is the shape of the table as floats.
void check_tied(const Tensor& hidden, const Shape& table, const Tensor& bias,
                const Tensor& target) {
  check<ShapeError>(
      hidden.rank() == 2 && table.rank() == 2 && hidden.shape()[1] == table[1] &&
          hidden.numel() > 0 && table.numel() > 0 && target.shape() == Shape{hidden.shape()[0]},
      "tied_cross_entropy",
      "needs hidden [N, H], table [V, H] and target [N], none empty, got {}, {} and {}", hidden,
      table, target);
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{table[0]}, "tied_cross_entropy",
                    "bias must be [V], got {} and table {}", bias, table);
  check<DTypeError>(is_float(hidden.dtype()) && (!bias.defined() || bias.dtype() == hidden.dtype()),
                    "tied_cross_entropy",
                    "hidden and bias must be float of one dtype, got {} and {}", hidden, bias);
  check<DTypeError>(target.dtype() == DType::i32, "tied_cross_entropy",
                    "the target must be i32, got {}", target);
}

// The mean loss; `table` has the shape `of_table` as floats.
Tensor tied_loss(Tensor hidden, Tensor table, const Shape& of_table, const BlockType* blocks,
                 Tensor bias, const Tensor& target, const TiedCrossEntropyOptions& o,
                 Tensor* predicted) {
  check_tied(hidden, of_table, bias, target);
  check(o.label_smoothing >= 0 && o.label_smoothing < 1, "tied_cross_entropy",
        "label_smoothing must be in [0, 1), got {}", o.label_smoothing);
  check(o.chunk >= 0, "tied_cross_entropy", "chunk must not be negative, got {}", o.chunk);
  check_indices("tied_cross_entropy", "the target", target, of_table[0] - 1, o.ignore_index);

  constexpr int64_t default_chunk_bytes = 32 << 20;
  const int64_t row_bytes = of_table[0] * static_cast<int64_t>(size_of(hidden.dtype()));
  const int64_t chunk =
      o.chunk > 0 ? o.chunk : std::max<int64_t>(1, default_chunk_bytes / row_bytes);
  const TiedAttrs attrs{o.label_smoothing, o.ignore_index,       chunk,
                        bias.defined(),    predicted != nullptr, blocks};
  TensorList inputs(std::move(hidden), std::move(table), target);
  if (bias) inputs.push_back(std::move(bias));
  std::vector<Tensor> outputs = apply(blocks ? tied_blocks_op : tied_op, attrs, std::move(inputs));
  if (predicted) *predicted = outputs[2].detach();
  return sum(outputs[0]) / count_valid(target, o.ignore_index);
}

}  // namespace

Tensor tied_cross_entropy(Tensor hidden, Tensor table, Tensor bias, Tensor target,
                          const TiedCrossEntropyOptions& o, Tensor* predicted) {
  const AutocastInputs autocast("tied_cross_entropy", {&hidden, &table, &bias});
  check<DTypeError>(hidden.dtype() == table.dtype(), "tied_cross_entropy",
                    "hidden, table and bias must be float of one dtype, got {} and {}", hidden,
                    table);
  const Shape shape = table.shape();
  return tied_loss(std::move(hidden), std::move(table), shape, nullptr, std::move(bias), target, o,
                   predicted);
}

Tensor tied_cross_entropy(Tensor hidden, const BlockMatrix& table, Tensor bias, Tensor target,
                          const TiedCrossEntropyOptions& o, Tensor* predicted) {
  const AutocastInputs autocast("tied_cross_entropy_blocks", {&hidden, &bias});
  return tied_loss(std::move(hidden), table.codes(), {table.rows(), table.columns()}, &table.type(),
                   std::move(bias), target, o, predicted);
}

}  // namespace rw
