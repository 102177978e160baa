// Scans, norms, tests of values, gated activations.
#include <limits>

#include "core/tensor/quantize.h"
#include "ops/numeric.h"
#include "ops/operators.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

namespace {

void add_scans(Table& t) {
  for (const int axis : {0, 1, 2})
    for (const bool reverse : {false, true}) {
      const std::string how = fmt::format("over {}{}", axis, reverse ? " from the end" : "");
      t.row("cumprod " + how, {x({3, 4, 6}, 0.5f, 1.6f)},
            [=](const Tensors& in) { return cumprod(in[0], axis, reverse); });
      t.row("logcumsumexp " + how, {x({3, 4, 6})},
            [=](const Tensors& in) { return logcumsumexp(in[0], axis, reverse); });
    }
  // Rows with one zero in a line, and with several.
  t.row("cumprod with zeros", {x({4, 5})}, [](const Tensors& in) {
    return cumprod(in[0] * cast(abs(in[0]) > 0.5f, in[0].dtype()), 1);
  });
  t.row("prod with zeros", {x({6, 3})}, [](const Tensors& in) {
    return prod(in[0] * cast(abs(in[0]) > 0.5f, in[0].dtype()), {1});
  });
  OpCase& products = t.row("cumprod in parts", {x({2, 1500, 2})},
                           [](const Tensors& in) { return cumprod(exp(sin(in[0]) * 0.01f), 1); });
  products.f32_tolerance = 1e-4;  // each of 1500 factors adds its rounding
  products.roundings = 64;
  OpCase& in_parts = t.row("logcumsumexp in parts", {x({1, 1500})},
                           [](const Tensors& in) { return logcumsumexp(in[0], 1, true); });
  // The gradient sums terms of both signs, each as exact as the exponential of a rounded output.
  in_parts.f32_tolerance = 1e-4;
  in_parts.roundings = 128;
  t.row("cumprod of i32", {index({3, 40}, 5)},
        [](const Tensors& in) { return cumprod(in[0] * 2 + 1, 1); });
}

// The values that come back, and what lies in memory meanwhile.
void add_quantization(Table& t) {
  const auto there_and_back = [](const Tensors& in) {
    const QuantizedBlocks kept = quantize_blocks(in[0]);
    return Tensors{dequantize_blocks(kept, in[0].dtype()), kept.codes, kept.steps};
  };
  t.row("quantize blocks", {constant({3, 150}, -2, 3)}, there_and_back);
  t.row("quantize whole blocks", {constant({2, 4, 128}, 0.1f, 5)}, there_and_back);
  t.row("quantize few", {constant({5})}, there_and_back);
  t.row("quantize nothing", {constant({0, 3})}, there_and_back);
}

void add_norms(Table& t) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const Axes& axes : {Axes{}, Axes{0}, Axes{1, 2}, Axes{-1}}) {
    const std::string over = fmt::format(" over ({})", fmt::join(axes, ", "));
    for (const float p : {0.0f, 1.0f, 2.0f, 3.0f, infinity, -infinity})
      t.row(fmt::format("norm {}", p) + over, {x({3, 4, 5})},
            [=](const Tensors& in) { return norm(in[0], p, axes, p == 2); });
    t.row("logsumexp" + over, {x({3, 4, 5}, -5, 5)}, [=](const Tensors& in) {
      return Tensors{logsumexp(in[0], axes), logsumexp(in[0] * 100.0f, axes, true)};
    });
    t.row("any" + over, {mask({2, 3, 4}), index({2, 3, 4}, 3)}, [=](const Tensors& in) {
      return Tensors{any(in[0], axes), any(in[1], axes)};
    });
    t.row("all" + over, {mask({2, 3, 4}), index({2, 3, 4}, 3)}, [=](const Tensors& in) {
      return Tensors{all(in[0], axes, true), all(in[1], axes)};
    });
  }
  t.row("logsumexp of nothing", {x({3, 0})},
        [](const Tensors& in) { return isinf(logsumexp(in[0], {1})); });
  t.row("any and all of nothing", {mask({3, 0})}, [](const Tensors& in) {
    return Tensors{any(in[0], {1}), all(in[0], {1})};
  });
  t.row("cosine_similarity", {x({4, 5, 3}), x({5, 3})},
        [](const Tensors& in) { return cosine_similarity(in[0], in[1], -1); });
  t.row("normalize", {x({4, 5})}, [](const Tensors& in) {
    return Tensors{normalize(in[0]), normalize(in[0], 1, 0)};
  });
  const std::pair<const char*, Tensor (*)(Tensor)> tests[] = {{"isinf", isinf},
                                                              {"isfinite", isfinite}};
  for (const auto& [name, test] : tests)
    t.row(name, {constant({5, 1}, -2, 2), constant({6}, -2, 2)},
          [test = test](const Tensors& in) { return test(trunc(in[0]) / trunc(in[1])); });
  t.row("nan_to_num", {constant({5, 1}, -2, 2), constant({6}, -2, 2)},
        [](const Tensors& in) { return nan_to_num(trunc(in[0]) / trunc(in[1]), 1, 2, -3); });
}

void add_gates(Table& t) {
  t.row("prelu", {x({3, 4, 5}), learned({5}, 0.1f, 0.5f)},
        [](const Tensors& in) { return prelu(in[0], in[1]); });
  t.row("prelu of one weight", {x({3, 4}), learned({1}, 0.1f, 0.5f)},
        [](const Tensors& in) { return prelu(in[0], in[1]); });
  t.row("glu", {x({3, 6, 4})}, [](const Tensors& in) {
    return Tensors{glu(in[0]), glu(in[0], 1)};
  });
  t.row("swiglu", {x({3, 7}), x({3, 7})}, [](const Tensors& in) { return swiglu(in[0], in[1]); });
  t.row("geglu", {x({3, 7}), x({3, 7})}, [](const Tensors& in) { return geglu(in[0], in[1]); });
  t.row("swiglu of views", {x({7, 3}), x({3, 7})},
        [](const Tensors& in) { return swiglu(transpose(in[0], 0, 1), in[1]); });
}

}  // namespace

void add_numeric(Table& t) {
  add_scans(t);
  add_quantization(t);
  add_norms(t);
  add_gates(t);
}

}  // namespace rw::test
