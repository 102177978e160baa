// Elementwise, layout, reductions, matrix products; the table.
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "ops/autocast.h"
#include "ops/numeric.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

namespace {

// ---- elementwise: from shaders/elementwise.def
// Each row's public function of tensors only; those not listed have the row's name.
namespace rows {
using namespace rw;
Tensor pow_scalar(const Tensor& t) {
  return pow(t, 1.7f);
}
Tensor affine(const Tensor& t) {
  return rw::affine(t, -1.5f, 0.25f);
}
Tensor clamp(const Tensor& t) {
  return rw::clamp(t, -1, 2);
}
Tensor leaky_relu(const Tensor& t) {
  return rw::leaky_relu(t, 0.1f);
}
Tensor elu(const Tensor& t) {
  return rw::elu(t, 1.3f);
}
}  // namespace rows

void add_elementwise(Table& t) {
#define UNARY(id, op, forward, grad, saves, low, high)          \
  t.row(#op, {x({3, 5, 7}, low, high)}, [](const Tensors& in) { \
     return rows::op(in[0]);                                    \
   }).elementwise = true;
#include "shaders/elementwise.def"
#define BINARY(id, op, forward, lo, hi, lo_y, hi_y)                                    \
  t.row(#op, {x({3, 4, 6}, lo, hi), x({3, 4, 6}, lo_y, hi_y)}, [](const Tensors& in) { \
     return rows::op(in[0], in[1]);                                                    \
   }).elementwise = true;                                                              \
  t.row(#op " rows", {x({3, 4, 8}, lo, hi), x({4, 8}, lo_y, hi_y)},                    \
        [](const Tensors& in) { return rows::op(in[0], in[1]); });                     \
  t.row(#op " outer", {x({5, 1}, lo, hi), x({2, 1, 3}, lo_y, hi_y)},                   \
        [](const Tensors& in) { return rows::op(in[0], in[1]); });                     \
  t.row(#op " scalar", {x({}, (lo + hi) / 2 + 0.3f, hi), x({3, 7}, lo_y, hi_y)},       \
        [](const Tensors& in) { return rows::op(in[0], in[1]); });
#include "shaders/elementwise.def"
#define COMPARE(id, op, forward)                                                                   \
  t.row(#op, {index({4, 5}, 6), index({5}, 6)}, [](const Tensors& in) {                            \
     return rows::op(in[0], in[1]);                                                                \
   }).elementwise = true;                                                                          \
  t.row(#op " float", {constant({2, 1, 9}, 0, 3), constant({3, 1}, 0, 3)}, [](const Tensors& in) { \
     return rows::op(in[0], in[1]);                                                                \
   }).elementwise = true;
#include "shaders/elementwise.def"

  t.row("unary of nothing", {x({0, 3})}, [](const Tensors& in) { return relu(in[0]); });
  t.row("add of nothing", {x({2, 0}), x({1})}, [](const Tensors& in) { return in[0] + in[1]; });
  t.row("add of one tensor twice", {x({3, 5})}, [](const Tensors& in) { return in[0] + in[0]; });
  t.row("mul of one tensor twice", {x({3, 5})}, [](const Tensors& in) { return in[0] * in[0]; });
  for (const float base : {-3.0f, 0.0f, 2.0f})
    t.row(fmt::format("pow of {}, whole exponents", base),
          {constant({4, 1}, base, base), index({5}, 5)},
          [](const Tensors& in) { return pow(in[0], cast(in[1], in[0].dtype())); });
  t.row("pow of i32", {index({7, 1}, 7), index({9}, 9)},
        [](const Tensors& in) { return pow(in[0] - 3, in[1] - 4); });
  t.row("fmod and remainder of i32", {index({7, 1}, 7), index({9}, 9)}, [](const Tensors& in) {
    return Tensors{fmod(in[0] - 3, in[1] - 4), remainder(in[0] - 3, in[1] - 4)};
  });
  t.row("fmod and remainder of all sizes", {constant({40}, -1, 1), constant({30, 1}, -1, 1)},
        [](const Tensors& in) {
          const Tensor a = cast(in[0], DType::f32), b = cast(in[1], DType::f32);
          return Tensors{fmod(a * 1e6f, b), remainder(a * 1000.0f, b * 30.0f), fmod(a, b * 1e-4f)};
        });
  t.row("logaddexp of infinities", {constant({3, 1}, -1, 2), constant({3}, -1, 2)},
        [](const Tensors& in) {
          const Tensor y = logaddexp(floor(in[0]) / 0.0f, floor(in[1]) / 0.0f);
          const float infinity = std::numeric_limits<float>::infinity();
          return Tensors{y == infinity, y == -infinity, y != y};
        });
  t.row("pow_base", {x({3, 5})}, [](const Tensors& in) { return pow(1.7f, in[0]); });
  t.row("logical_not", {constant({3, 5}, -1, 1)},
        [](const Tensors& in) { return logical_not(trunc(in[0])); });
  t.row("logical", {index({4, 5}, 3), mask({5})}, [](const Tensors& in) {
    const Tensor m = cast(in[1], DType::i32);
    return Tensors{logical_and(in[0], m), logical_or(in[0], m), logical_xor(in[0], m),
                   logical_not(in[0]), logical_not(in[1])};
  });
  t.row("promotion", {x({3, 5}), index({5}, 9), mask({3, 1})}, [](const Tensors& in) {
    return Tensors{in[0] + in[1], in[2] * in[0], in[1] - in[2], in[2] + in[2], in[1] < in[0]};
  });
  t.row("functions of i32", {index({3, 5}, 9)}, [](const Tensors& in) {
    const Tensor i = in[0] - 4;
    return Tensors{neg(i), abs(i),  square(i), sign(i), relu(i), clamp(i, -1.5f, 2.5f),
                   exp(i), floor(i)};
  });
  t.row("functions of u8", {mask({3, 5})}, [](const Tensors& in) {
    return Tensors{neg(in[0]), clamp(in[0], 1, 3), sqrt(in[0]), sum(in[0], {0}), max(in[0])};
  });
  t.row("add i32", {index({3, 5}, 9), index({5}, 9)},
        [](const Tensors& in) { return in[0] + in[1]; });
  t.row("unary of an expanded view", {x({3, 1, 5})}, [](const Tensors& in) {
    return sigmoid(expand(in[0], {2, 3, 4, 5}));
  });
  t.row("operators with a number on the left", {x({3, 5}, 0.5f, 2)},
        [](const Tensors& in) { return (1.0f - in[0]) * (2.0f + in[0]) + 2.0f / in[0]; });
  t.row("assignments", {x({3, 5}), x({5}, 0.5f, 2)}, [](const Tensors& in) {
    Tensor y = in[0] * 0.5f;
    y += in[1];
    y *= in[1];
    y -= in[0];
    y /= in[1];
    y += 0.5f;
    return y;
  });
  t.row("operators", {x({3, 5}), x({3, 5}, 0.5f, 2)},
        [](const Tensors& in) { return (2.0f * in[0] - in[1] / 4.0f) * (-in[0] + 1.0f) - 3.0f; });
  t.row("where", {mask({3, 4, 5}), x({3, 4, 5}), x({3, 4, 5})},
        [](const Tensors& in) { return where(in[0], in[1], in[2]); });
  t.row("masked_fill", {x({3, 4, 5}), mask({4, 1})},
        [](const Tensors& in) { return masked_fill(in[0], in[1], 1.5f); });
  t.row("where broadcast", {mask({4, 1}), x({3, 1, 5}), x({})},
        [](const Tensors& in) { return where(in[0], in[1], in[2]); });
}

// ---- dtype and layout
void add_layout(Table& t) {
  t.row("cast to f16", {x({3, 7})}, [](const Tensors& in) { return cast(in[0], DType::f16); });
  t.row("cast to f32", {x({3, 7})}, [](const Tensors& in) { return cast(in[0], DType::f32); });
  for (const DType dtype : {DType::i32, DType::u8})
    t.row(fmt::format("cast to {}", name(dtype)), {constant({3, 7}, 0, 9)}, [=](const Tensors& in) {
       return cast(in[0], dtype);
     }).elementwise = true;
  t.row("cast of u8", {mask({3, 7})}, [](const Tensors& in) { return cast(in[0], DType::f32); });
  t.row("promotion", {x({3, 7}), x({3, 7})},
        [](const Tensors& in) { return in[0] * cast(in[1], DType::f16); });
  t.row("copy_into, fill_, accumulate", {constant({3, 7})}, [](const Tensors& in) {
    const Tensor target = zeros({7, 6}), sum = zeros_like(target);
    fill_(target, -0.5f);
    copy_into(in[0], transpose(slice(target, 1, 0, 6, 2), 0, 1));
    accumulate(target, sum);
    accumulate(cast(target, DType::f16), sum, 2);
    return sum;
  });
  t.row("contiguous", {x({3, 4, 5})}, [](const Tensors& in) {
    return contiguous(permute(in[0], {2, 0, 1}));
  });
  t.row("checkpoint_keep", {x({3, 4})}, [](const Tensors& in) { return checkpoint_keep(in[0]); });
  t.row("checkpoint_name", {x({3, 4})},
        [](const Tensors& in) { return checkpoint_name(in[0], "kept"); });
  t.row("reshape", {x({3, 4, 5})}, [](const Tensors& in) { return reshape(in[0], {5, -1, 2}); });
  t.row("reshape of a transposed view", {x({3, 4})}, [](const Tensors& in) {
    return reshape(transpose(in[0], 0, 1), {2, 6});
  });
  t.row("flatten", {x({2, 3, 4, 2})}, [](const Tensors& in) { return flatten(in[0], 1, 2); });
  t.row("transpose", {x({3, 4, 5})}, [](const Tensors& in) { return transpose(in[0], 0, -1); });
  t.row("permute", {x({2, 3, 4, 2})}, [](const Tensors& in) {
    return permute(in[0], {3, 1, 0, 2});
  });
  t.row("permute of rank 6", {x({2, 3, 1, 2, 3, 2})}, [](const Tensors& in) {
    return permute(in[0], {5, 3, 1, 0, 2, 4});
  });
  t.row("slice", {x({4, 9})}, [](const Tensors& in) { return slice(in[0], 1, 1, 8); });
  t.row("slice with step", {x({4, 9})},
        [](const Tensors& in) { return slice(in[0], -1, 1, -1, 3); });
  t.row("slice to nothing", {x({4, 9})}, [](const Tensors& in) { return slice(in[0], 0, 2, 2); });
  t.row("select", {x({4, 3, 5})}, [](const Tensors& in) { return select(in[0], 1, -1); });
  t.row("expand", {x({3, 1, 5})}, [](const Tensors& in) { return expand(in[0], {2, 3, 4, 5}); });
  t.row("squeeze", {x({3, 1, 5})}, [](const Tensors& in) { return squeeze(in[0], 1); });
  t.row("unsqueeze", {x({3, 5})}, [](const Tensors& in) { return unsqueeze(in[0], -1); });
  t.row("concat", {x({2, 3}), x({2, 1}), x({2, 5})},
        [](const Tensors& in) { return concat(in, 1); });
  t.row("concat outer", {x({2, 3}), x({0, 3}), x({4, 3})},
        [](const Tensors& in) { return concat(in, 0); });
  t.row("concat of one tensor twice", {x({2, 3})}, [](const Tensors& in) {
    return concat({in[0], in[0]}, -1);
  });
  t.row("stack", {x({2, 3}), x({2, 3})}, [](const Tensors& in) { return stack(in, 1); });
  t.row("split", {x({7, 3})}, [](const Tensors& in) { return split(in[0], 3, 0); });
  t.row("split with parts that nobody reads", {x({2, 7})}, [](const Tensors& in) {
    const std::vector<Tensor> parts = split(in[0], 3, 1);
    return parts[0] * parts[parts.size() / 2];
  });
  t.row("pad", {x({2, 3, 4})}, [](const Tensors& in) {
    return pad(in[0], {0, 1, 2}, {1, 0, 3}, 0.5f);
  });
  t.row("view of a view", {x({4, 6, 5})}, [](const Tensors& in) {
    return select(slice(transpose(in[0], 0, 1), 0, 1, 6, 2), 1, 2) * 2.0f;
  });
  t.row("sum_to", {x({2, 3, 4})}, [](const Tensors& in) { return sum_to(in[0], {3, 1}); });
}

// ---- reductions
void add_reductions(Table& t) {
  const std::vector<Axes> sets = {{}, {0}, {1}, {-1}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
  for (const Axes& axes : sets) {
    const auto name = [&](const char* op) {
      return fmt::format("{} over ({})", op, fmt::join(axes, ", "));
    };
    t.row(name("sum"), {x({3, 4, 6})}, [=](const Tensors& in) { return sum(in[0], axes); });
    t.row(name("mean"), {x({3, 4, 6})}, [=](const Tensors& in) { return mean(in[0], axes, true); });
    t.row(name("max"), {x({3, 4, 6})}, [=](const Tensors& in) { return max(in[0], axes); });
    t.row(name("min"), {x({3, 4, 6})}, [=](const Tensors& in) { return min(in[0], axes, true); });
    t.row(name("var"), {x({3, 4, 6})}, [=](const Tensors& in) { return var(in[0], axes, true); });
    t.row(name("prod"), {x({2, 3, 2}, 0.6f, 1.6f)},
          [=](const Tensors& in) { return prod(in[0], axes); });
  }
  t.row("sum of one run in two levels", {x({20001}, 0, 1)},
        [](const Tensors& in) { return sum(in[0]); });
  t.row("sum of long columns", {x({2500, 8}, 0, 1)},
        [](const Tensors& in) { return sum(in[0], {0}); });
  t.row("max of long rows", {x({2, 9000})}, [](const Tensors& in) {
     return max(in[0], {1});
   }).step = 0x1p-18;
  t.row("mean of a long middle axis", {x({2, 1030, 3}, 0, 1)},
        [](const Tensors& in) { return mean(in[0], {1}); });
  t.row("sum over outer and inner of wide rows", {x({3, 2, 4100}, 0, 1)}, [](const Tensors& in) {
    return sum(in[0], {0, 2});
  });
  for (const int axis : {0, 1, -1}) {
    t.row(fmt::format("cumsum over {}", axis), {x({3, 4, 6})},
          [=](const Tensors& in) { return cumsum(in[0], axis); });
    t.row(fmt::format("cumsum over {} from the end", axis), {x({3, 4, 6})},
          [=](const Tensors& in) { return cumsum(in[0], axis, true); });
  }
  for (const bool reverse : {false, true})
    t.row(fmt::format("cumsum in parts{}", reverse ? " from the end" : ""), {x({2, 2100, 2})},
          [=](const Tensors& in) { return cumsum(in[0], 1, reverse); })
        .f32_tolerance = 4e-5;  // sums 2100 values of both signs
  t.row("cumsum of i32 in parts", {index({1, 1030}, 9)},
        [](const Tensors& in) { return cumsum(in[0], 1, true); });
  t.row("cumsum of nothing", {x({0, 3})}, [](const Tensors& in) { return cumsum(in[0], 1); });
  t.row("sum of nothing", {x({0, 3})}, [](const Tensors& in) { return sum(in[0], {0}); });
  t.row("sum of i32", {index({5, 7}, 9)}, [](const Tensors& in) { return sum(in[0], {1}); });
  t.row("argmax", {constant({4, 9})}, [](const Tensors& in) { return argmax(in[0]); });
  t.row("argmax of ties", {index({4, 9}, 3)},
        [](const Tensors& in) { return argmax(cast(in[0], DType::f32), 0); });
  t.row("argmin", {constant({3, 5, 4})}, [](const Tensors& in) { return argmin(in[0], 1); });
}

// ---- matrix products and convolution
void add_matrix(Table& t) {
  const auto product = [](const Tensors& in) { return matmul(in[0], in[1]); };
  t.row("matmul", {x({5, 7}), x({7, 3})}, product);
  t.row("matmul wide", {x({70, 33}), x({33, 65})}, product);
  t.row("matmul aligned", {x({64, 32}), x({32, 64})}, product);
  t.row("matmul a transposed", {x({7, 5}), x({7, 3})},
        [](const Tensors& in) { return matmul(transpose(in[0], 0, 1), in[1]); });
  t.row("matmul b transposed", {x({5, 7}), x({3, 7})},
        [](const Tensors& in) { return matmul(in[0], transpose(in[1], 0, 1)); });
  t.row("matmul both transposed", {x({40, 17}), x({20, 40})},
        [](const Tensors& in) { return matmul(transpose(in[0], 0, 1), transpose(in[1], 0, 1)); });
  t.row("matmul row by matrix", {x({1, 9}), x({9, 5})}, product);
  t.row("matmul matrix by column", {x({6, 9}), x({9, 1})}, product);
  t.row("matmul outer", {x({6, 1}), x({1, 5})}, product);
  t.row("matmul of vectors", {x({9}), x({9})}, product);
  t.row("matmul matrices by vector", {x({2, 5, 7}), x({7})}, product);
  t.row("matmul vector by matrices", {x({7}), x({2, 7, 3})}, product);
  t.row("matmul of nothing", {x({4, 0}), x({0, 3})}, product);
  t.row("matmul batches", {x({2, 3, 4, 5}), x({2, 3, 5, 2})}, product);
  t.row("matmul shared b", {x({3, 4, 5}), x({5, 2})}, product);
  t.row("matmul shared a", {x({4, 5}), x({3, 5, 2})}, product);
  t.row("matmul broadcast batches", {x({2, 1, 3, 4}), x({3, 4, 2})}, product);
  t.row("matmul attention scores", {x({2, 5, 3, 4}), x({2, 5, 3, 4})}, [](const Tensors& in) {
    return matmul(permute(in[0], {0, 2, 1, 3}), permute(in[1], {0, 2, 3, 1}));
  });
  t.row("linear", {x({2, 3, 5}), x({4, 5}), learned({4}, -1, 1)},
        [](const Tensors& in) { return linear(in[0], in[1], in[2]); });
  t.row("linear without bias", {x({6, 5}), x({3, 5})},
        [](const Tensors& in) { return linear(in[0], in[1]); });

  OpCase& mixed = t.row("autocast", {x({6, 5}), x({3, 5}), x({3, 4})}, [](const Tensors& in) {
    const Autocast autocast(DType::f16);
    return matmul(linear(in[0], in[1]), in[2]);
  });
  mixed.f32_tolerance = 0x1p-9;  // its halves'

  const auto conv = [&](const char* name, const Shape& image, const Shape& weight,
                        const Conv2dOptions& o) {
    t.row(name, {x(image), x(weight)}, [o](const Tensors& in) { return conv2d(in[0], in[1], o); });
  };
  conv("conv2d", {2, 5, 6, 3}, {4, 3, 3, 3}, {});
  conv("conv2d padded", {2, 4, 5, 3}, {5, 3, 3, 3}, Conv2dOptions{.padding = 1});
  conv("conv2d stride 2", {1, 7, 8, 3}, {4, 3, 3, 3}, Conv2dOptions{.stride = 2, .padding = 1});
  conv("conv2d dilated", {1, 7, 7, 2}, {3, 3, 3, 2}, Conv2dOptions{.padding = 2, .dilation = 2});
  conv("conv2d groups", {2, 4, 4, 6}, {4, 3, 3, 3}, Conv2dOptions{.padding = 1, .groups = 2});
  conv("conv2d depthwise", {2, 5, 4, 6}, {6, 3, 3, 1}, Conv2dOptions{.padding = 1, .groups = 6});
  conv("conv2d 1x1", {2, 3, 4, 5}, {6, 1, 1, 5}, {});
  conv("conv2d 1x1 stride 2", {2, 5, 5, 4}, {3, 1, 1, 4}, Conv2dOptions{.stride = 2});
  conv("conv2d uneven", {1, 6, 9, 2}, {3, 2, 5, 2}, Conv2dOptions{{2, 1}, {1, 2}, {1, 2}});
  t.row("conv2d with bias", {x({2, 5, 6, 3}), x({4, 3, 3, 3}), learned({4}, -1, 1)},
        [](const Tensors& in) { return conv2d(in[0], in[1], in[2]); });
  t.row("conv2d with bias, uneven", {x({1, 6, 9, 4}), x({8, 2, 5, 2}), learned({8}, -1, 1)},
        [](const Tensors& in) {
          return conv2d(in[0], in[1], in[2], {{2, 1}, {1, 2}, {1, 2}, 2});
        });
  conv("conv2d 32 channels", {1, 6, 6, 32}, {32, 3, 3, 32}, Conv2dOptions{.padding = 1});
}

// The rows that heads have.
void add_tried(Table& t){
#include "ops/op_rows.inc"
}

std::vector<OpCase> all_rows() {
  Table table;
  add_elementwise(table);
  add_tried(table);
  add_layout(table);
  add_reductions(table);
  add_matrix(table);
  add_blocks(table);
  add_indexing(table);
  add_network(table);
  add_numeric(table);
  add_sequence(table);
  add_attention(table);
  add_losses(table);
  add_transformer(table);
  add_vision(table);
  std::vector<OpCase> rows = table.take();
  for (OpCase& row : rows) {
    const bool is_attention = row.name.starts_with("attention");
    row.spreads = row.name.starts_with("conv") || is_attention;
    if (is_attention) row.f32_tolerance = std::max(row.f32_tolerance, 2e-5);  // GPUs' exp()
  }
  return rows;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> rows = all_rows();
  return rows;
}

std::vector<float> input_values(const Input& input, size_t which) {
  const auto n = static_cast<size_t>(input.shape.numel());
  // Values are evenly spread, and visited with a stride that has no factor in common with n.
  size_t stride = n * 5 / 8 + which + 1;
  const auto coprime = [&] { return std::gcd(stride, n) == 1; };
  while (n > 1 && !coprime()) ++stride;
  std::vector<float> values(n);
  constexpr float margin = 0.02f;
  for (size_t i = 0; i < n; ++i) {
    const auto place = static_cast<float>((i * stride + which) % n) + 0.37f;
    float v = input.low + (input.high - input.low) * place / static_cast<float>(n);
    if (!is_float(input.dtype)) {
      v = std::floor(v);
    } else if (const float whole = std::round(v), away = std::abs(v - whole);
               n < 1000 && away < margin) {
      v = whole + (v < whole ? -1 : 1) * (margin + away / 4);  // and no two alike
    }
    values[i] = v;
  }
  return values;
}

}  // namespace rw::test
