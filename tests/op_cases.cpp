#include "tests/op_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <tuple>
#include <type_traits>

#include "rewind/core/ops/autocast.h"

namespace rw::test {

namespace {

// ---- inputs
Input x(const Shape& shape, float low = -2, float high = 2) {
  return {shape, low, high};
}
Input constant(const Shape& shape, float low = -2, float high = 2) {
  return {shape, low, high, DType::f32, false};
}
Input parameter(const Shape& shape, float low = 0.5f, float high = 1.5f) {
  return {shape, low, high, DType::f32, true, true};
}
Input statistic(const Shape& shape, float low, float high) {
  return {shape, low, high, DType::f32, false, true};
}
Input index(const Shape& shape, int count) {
  return {shape, 0, static_cast<float>(count), DType::i32, false};
}
Input mask(const Shape& shape) {
  return {shape, 0, 2, DType::u8, false};
}

class Table {
 public:
  // `run` takes the inputs and gives a tensor or several.
  template <class F>
  OpCase& row(std::string name, std::vector<Input> inputs, F run) {
    OpCase c{.name = std::move(name), .inputs = std::move(inputs)};
    if constexpr (std::is_same_v<std::invoke_result_t<F, const Tensors&>, Tensor>)
      c.run = [run](const Tensors& in) { return Tensors{run(in)}; };
    else
      c.run = run;
    rows_.push_back(std::move(c));
    return rows_.back();
  }
  std::vector<OpCase> take() { return std::move(rows_); }

 private:
  std::vector<OpCase> rows_;
};

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
Tensor eq(const Tensor& a, const Tensor& b) {
  return equal(a, b);
}
Tensor ne(const Tensor& a, const Tensor& b) {
  return not_equal(a, b);
}
Tensor lt(const Tensor& a, const Tensor& b) {
  return less(a, b);
}
Tensor le(const Tensor& a, const Tensor& b) {
  return less_equal(a, b);
}
Tensor gt(const Tensor& a, const Tensor& b) {
  return greater(a, b);
}
Tensor ge(const Tensor& a, const Tensor& b) {
  return greater_equal(a, b);
}
}  // namespace rows

void add_elementwise(Table& t) {
#define UNARY(id, op, forward, grad, saves, low, high) \
  t.row(#op, {x({3, 5, 7}, low, high)}, [](const Tensors& in) { return rows::op(in[0]); });
#include "shaders/elementwise.def"
#define BINARY(id, op, forward)                                    \
  t.row(#op, {x({3, 4, 6}, -3, 3), x({3, 4, 6}, 0.4f, 3)},         \
        [](const Tensors& in) { return rows::op(in[0], in[1]); }); \
  t.row(#op " rows", {x({3, 4, 8}, -3, 3), x({4, 8}, 0.4f, 3)},    \
        [](const Tensors& in) { return rows::op(in[0], in[1]); }); \
  t.row(#op " outer", {x({5, 1}, -3, 3), x({2, 1, 3}, 0.4f, 3)},   \
        [](const Tensors& in) { return rows::op(in[0], in[1]); }); \
  t.row(#op " scalar", {x({}, 1, 2), x({3, 7}, 0.4f, 3)},          \
        [](const Tensors& in) { return rows::op(in[0], in[1]); });
#include "shaders/elementwise.def"
#define COMPARE(id, op, forward)                                           \
  t.row(#op, {index({4, 5}, 6), index({5}, 6)},                            \
        [](const Tensors& in) { return rows::op(in[0], in[1]); });         \
  t.row(#op " float", {constant({2, 1, 9}, 0, 3), constant({3, 1}, 0, 3)}, \
        [](const Tensors& in) { return rows::op(in[0], in[1]); });
#include "shaders/elementwise.def"

  t.row("unary of nothing", {x({0, 3})}, [](const Tensors& in) { return relu(in[0]); });
  t.row("add of nothing", {x({2, 0}), x({1})}, [](const Tensors& in) { return in[0] + in[1]; });
  t.row("add of one tensor twice", {x({3, 5})}, [](const Tensors& in) { return in[0] + in[0]; });
  t.row("mul of one tensor twice", {x({3, 5})}, [](const Tensors& in) { return in[0] * in[0]; });
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
  t.row("where broadcast", {mask({4, 1}), x({3, 1, 5}), x({})},
        [](const Tensors& in) { return where(in[0], in[1], in[2]); });
}

// ---- dtype and layout
void add_layout(Table& t) {
  t.row("cast to f16", {x({3, 7})}, [](const Tensors& in) {
     return cast(in[0], DType::f16);
   }).step = 0.05;
  t.row("cast to f32", {x({3, 7})}, [](const Tensors& in) { return cast(in[0], DType::f32); });
  t.row("cast to i32", {constant({3, 7})},
        [](const Tensors& in) { return cast(in[0], DType::i32); });
  t.row("cast of u8", {mask({3, 7})}, [](const Tensors& in) { return cast(in[0], DType::f32); });
  OpCase& promotion = t.row("promotion", {x({3, 7}), x({3, 7})},
                            [](const Tensors& in) { return in[0] * cast(in[1], DType::f16); });
  promotion.step = 0.1;
  promotion.gradient_tolerance = 2e-2;
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
  t.row("sum of one run in two levels", {x({20001}, 0, 1)}, [](const Tensors& in) {
     return sum(in[0]);
   }).step = 0.5;
  t.row("sum of long columns", {x({2500, 8}, 0, 1)}, [](const Tensors& in) {
     return sum(in[0], {0});
   }).step = 0.5;
  t.row("max of long rows", {x({2, 9000})}, [](const Tensors& in) {
     return max(in[0], {1});
   }).step = 1e-4;
  t.row("mean of a long middle axis", {x({2, 1030, 3}, 0, 1)},
        [](const Tensors& in) { return mean(in[0], {1}); });
  t.row("sum over outer and inner of wide rows", {x({3, 2, 4100}, 0, 1)}, [](const Tensors& in) {
     return sum(in[0], {0, 2});
   }).step = 0.5;
  for (const int axis : {0, 1, -1}) {
    t.row(fmt::format("cumsum over {}", axis), {x({3, 4, 6})},
          [=](const Tensors& in) { return cumsum(in[0], axis); });
    t.row(fmt::format("cumsum over {} from the end", axis), {x({3, 4, 6})},
          [=](const Tensors& in) { return cumsum(in[0], axis, true); });
  }
  for (const bool reverse : {false, true})
    t.row(fmt::format("cumsum in parts{}", reverse ? " from the end" : ""), {x({2, 2100, 2})},
          [=](const Tensors& in) { return cumsum(in[0], 1, reverse); })
        .step = 0.05;
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
  t.row("matmul of nothing", {x({4, 0}), x({0, 3})}, product);
  t.row("matmul batches", {x({2, 3, 4, 5}), x({2, 3, 5, 2})}, product);
  t.row("matmul shared b", {x({3, 4, 5}), x({5, 2})}, product);
  t.row("matmul shared a", {x({4, 5}), x({3, 5, 2})}, product);
  t.row("matmul broadcast batches", {x({2, 1, 3, 4}), x({3, 4, 2})}, product);
  t.row("matmul attention scores", {x({2, 5, 3, 4}), x({2, 5, 3, 4})}, [](const Tensors& in) {
    return matmul(permute(in[0], {0, 2, 1, 3}), permute(in[1], {0, 2, 3, 1}));
  });
  t.row("linear", {x({2, 3, 5}), x({4, 5}), parameter({4}, -1, 1)},
        [](const Tensors& in) { return linear(in[0], in[1], in[2]); });
  t.row("linear without bias", {x({6, 5}), x({3, 5})},
        [](const Tensors& in) { return linear(in[0], in[1]); });

  OpCase& mixed = t.row("autocast", {x({6, 5}), x({3, 5}), x({3, 4})}, [](const Tensors& in) {
    const Autocast autocast(DType::f16);
    return matmul(linear(in[0], in[1]), in[2]);
  });
  mixed.step = 0.25;
  mixed.gradient_tolerance = 5e-2;
  mixed.f32_tolerance = mixed.f16_tolerance;

  const auto conv = [&](const char* name, const Shape& image, const Shape& weight,
                        const Conv2dOptions& o) {
    t.row(name, {x(image), x(weight)}, [o](const Tensors& in) {
       return conv2d(in[0], in[1], o);
     }).step = 0.05;
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
  t.row("conv2d with bias", {x({2, 5, 6, 3}), x({4, 3, 3, 3}), parameter({4}, -1, 1)},
        [](const Tensors& in) { return conv2d(in[0], in[1], in[2]); });
  t.row("conv2d with bias, uneven", {x({1, 6, 9, 4}), x({8, 2, 5, 2}), parameter({8}, -1, 1)},
        [](const Tensors& in) {
          return conv2d(in[0], in[1], in[2], {{2, 1}, {1, 2}, {1, 2}, 2});
        });
  conv("conv2d 32 channels", {1, 6, 6, 32}, {32, 3, 3, 32}, Conv2dOptions{.padding = 1});
}

// ---- normalisation, pooling, losses, indexing, random
void add_network(Table& t) {
  for (const auto& [name, o] : {std::pair{"2x2", Pool2dOptions{2, 2}},
                                {"3x3 stride 2 padded", Pool2dOptions{3, 2, 1}},
                                {"3x3 stride 1", Pool2dOptions{3, 1}},
                                {"uneven", Pool2dOptions{{2, 3}, {1, 2}, {1, 0}}}}) {
    t.row(fmt::format("max_pool2d {}", name), {x({2, 6, 5, 3})},
          [o](const Tensors& in) { return max_pool2d(in[0], o); });
    t.row(fmt::format("avg_pool2d {}", name), {x({2, 6, 5, 3})},
          [o](const Tensors& in) { return avg_pool2d(in[0], o); });
  }
  t.row("max_pool2d of windows whose places do not fit a byte", {x({1, 18, 17, 2})},
        [](const Tensors& in) {
          return max_pool2d(in[0], {.kernel = {17, 16}, .stride = 1});
        });
  t.row("max_pool2d dilated", {x({1, 6, 7, 2})}, [](const Tensors& in) {
    return max_pool2d(in[0], {.kernel = 2, .stride = 1, .dilation = 2});
  });
  t.row("avg_pool2d without padding in the count", {x({2, 5, 5, 3})}, [](const Tensors& in) {
    return avg_pool2d(in[0], {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false});
  });

  for (const Shape& shape : {Shape{9, 3}, Shape{2, 3, 4, 8}, Shape{70, 5}}) {
    const int64_t c = shape.at(-1);
    t.row(fmt::format("batch_norm {}", shape.str()),
          {x(shape), parameter({c}), parameter({c}, -1, 1)},
          [](const Tensors& in) { return batch_norm(in[0], in[1], in[2], 1e-3f).y; });
    t.row(fmt::format("batch_norm_with {}", shape.str()),
          {x(shape), statistic({c}, -1, 1), statistic({c}, 0.5f, 2), parameter({c}),
           parameter({c}, -1, 1)},
          [](const Tensors& in) { return batch_norm_with(in[0], in[1], in[2], in[3], in[4]); });
  }
  t.row("batch_norm statistics", {constant({9, 3}), statistic({3}, 0.5f, 1), statistic({3}, 0, 1)},
        [](const Tensors& in) {
          const BatchNormResult r = batch_norm(in[0], in[1], in[2]);
          return Tensors{r.mean, r.var};
        });

  for (int axis : {-1, 0, 1}) {
    t.row(fmt::format("softmax over {}", axis), {x({3, 4, 5})},
          [=](const Tensors& in) { return softmax(in[0], axis); });
    t.row(fmt::format("log_softmax over {}", axis), {x({3, 4, 5})},
          [=](const Tensors& in) { return log_softmax(in[0], axis); });
  }
  t.row("softmax of long rows", {x({2, 600})},
        [](const Tensors& in) { return softmax(in[0]) * 100.0f; });

  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
    for (const float smoothing : {0.0f, 0.1f})
      for (const int ignored : {-100, 2})
        t.row(fmt::format("cross_entropy, reduction {}, smoothing {}, ignoring {}",
                          static_cast<int>(reduction), smoothing, ignored),
              {x({7, 5}, -3, 3), index({7}, 5)}, [=](const Tensors& in) {
                return cross_entropy(in[0], in[1], {smoothing, ignored, reduction});
              });
  t.row("cross_entropy of many classes", {x({3, 700}), index({3}, 700)},
        [](const Tensors& in) { return cross_entropy(in[0], in[1]); });
  t.row("mse_loss", {x({4, 5}), x({4, 5})},
        [](const Tensors& in) { return mse_loss(in[0], in[1]); });
  t.row("embedding", {x({6, 5}), index({4, 3}, 6)},
        [](const Tensors& in) { return embedding(in[0], in[1]); });
  t.row("embedding of one index", {x({6, 4}), index({}, 6)},
        [](const Tensors& in) { return embedding(in[0], in[1]); });
  t.row("dropout", {x({6, 7})}, [](const Tensors& in) { return dropout(in[0], 0.4f); });
  t.row("rand", {}, [](const Tensors&) { return rand({5, 7}, -1, 3); });
  t.row("randn", {}, [](const Tensors&) { return randn({5, 7}, 1, 2); });
  t.row("full, zeros, ones, arange", {}, [](const Tensors&) {
    return Tensors{full({3, 5}, 1.5f), zeros({7}), ones({2, 3}, DType::f16), arange(9),
                   full({5}, 3, DType::u8)};
  });
}

// ---- group and instance norm: channels that move in words and others, runs of rows that one
// thread sums and several, 1 to 8 channels joined by a thread, moments in one level and two
void add_group_norms(Table& t) {
  const auto row = [&](const Shape& shape, int64_t groups) -> OpCase& {
    const int64_t c = shape.at(-1);
    return t.row(fmt::format("group_norm {} in {}", shape.str(), groups),
                 {x(shape), parameter({c}), parameter({c}, -1, 1)},
                 [=](const Tensors& in) { return group_norm(in[0], groups, in[1], in[2], 1e-3f); });
  };
  for (const auto& [shape, groups] : {std::pair{Shape{2, 3, 4, 12}, 3},
                                      {Shape{3, 5, 16}, 2},
                                      {Shape{2, 70, 8}, 4},
                                      {Shape{2, 3, 3, 6}, 2},
                                      {Shape{5, 10}, 2},
                                      {Shape{5, 3, 4}, 2},
                                      {Shape{1, 130, 24}, 1},
                                      {Shape{2, 3, 40}, 1}})
    row(shape, groups);
  t.row("group_norm of one large group",
        {x({1, 300, 300, 4}), parameter({4}), parameter({4}, -1, 1)},
        [](const Tensors& in) { return square(group_norm(in[0], 1, in[1], in[2])); })
      .step = 0.5;
  row({3000, 45}, 3).step = 0.05;  // in slices of samples
  t.row("group_norm without weight", {x({2, 3, 6})},
        [](const Tensors& in) { return group_norm(in[0], 2); });
  for (const Shape& shape : {Shape{2, 5, 6, 7}, Shape{2, 67, 8}}) {
    const int64_t c = shape.at(-1);
    t.row(fmt::format("instance_norm {}", shape.str()),
          {x(shape), parameter({c}), parameter({c}, -1, 1)},
          [](const Tensors& in) { return instance_norm(in[0], in[1], in[2], 1e-3f); });
  }
}

// ---- normalisation of rows, recurrent networks
void add_sequence(Table& t) {
  for (const Shape& shape : {Shape{5, 24}, Shape{3, 2, 7}, Shape{2, 600}, Shape{70, 8}}) {
    const int64_t c = shape.at(-1);
    t.row(fmt::format("layer_norm {}", shape.str()),
          {x(shape), parameter({c}), parameter({c}, -1, 1)},
          [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-3f); });
    t.row(fmt::format("rms_norm {}", shape.str()), {x(shape), parameter({c})},
          [](const Tensors& in) { return rms_norm(in[0], in[1], 1e-3f); });
  }
  t.row("layer_norm without weight", {x({4, 9})},
        [](const Tensors& in) { return layer_norm(in[0]); });
  add_group_norms(t);

  for (const int64_t h : {3, 8})
    for (const bool reverse : {false, true}) {
      const auto name = [&](const char* op) {
        return fmt::format("{} of {}{}", op, h, reverse ? " reversed" : "");
      };
      t.row(name("lstm"),
            {x({4, 2, 4 * h}), x({4 * h, h}, -1, 1), parameter({4 * h}, -1, 1), x({2, h}, -1, 1),
             parameter({2, h}, -1, 1)},
            [=](const Tensors& in) {
              const LstmResult r = lstm(in[0], in[1], in[2], in[3], in[4], reverse);
              return Tensors{r.y, r.c};
            });
      t.row(name("gru"),
            {x({4, 2, 3 * h}), x({3 * h, h}, -1, 1), parameter({3 * h}, -1, 1), x({2, h}, -1, 1)},
            [=](const Tensors& in) { return gru(in[0], in[1], in[2], in[3], reverse); });
    }
  t.row("lstm: the last state only", {x({3, 2, 16}), x({16, 4}), x({2, 4}), parameter({2, 4})},
        [](const Tensors& in) { return lstm(in[0], in[1], {}, in[2], in[3]).c; });
}

// ---- attention and the chunked loss
void add_attention(Table& t) {
  for (const auto& [dim, causal, p] :
       {std::tuple{8, false, 0.0f}, std::tuple{11, true, 0.0f}, std::tuple{16, false, 0.3f}}) {
    const Shape q = {2, 2, 5, dim}, kv = {2, 2, 7, dim};
    const AttentionOptions o{.causal = causal, .dropout = p};
    const std::string name =
        fmt::format("attention of {} dimensions, causal {}, dropout {}", dim, causal, p);
    t.row(name, {x(q), x(kv), x(kv)},
          [o](const Tensors& in) { return attention(in[0], in[1], in[2], o); });
    t.row(name + ", masked", {x(q), x(kv), x(kv), statistic({2, 1, 5, 7}, -3, 3)},
          [o](const Tensors& in) { return attention(in[0], in[1], in[2], o, in[3]); });
    t.row(name + ", padded", {x(q), x(kv), x(kv), index({2}, 7)},
          [o](const Tensors& in) { return attention(in[0], in[1], in[2], o, {}, in[3]); });
  }
  t.row("attention over many keys",
        {x({1, 2, 19, 64}, -1, 1), x({1, 2, 75, 64}), x({1, 2, 75, 64})},
        [](const Tensors& in) { return attention(in[0], in[1], in[2]); });

  for (const float smoothing : {0.0f, 0.1f})
    for (const int64_t chunk : {0, 4}) {
      const TiedCrossEntropyOptions o{
          .label_smoothing = smoothing, .ignore_index = 2, .chunk = chunk};
      t.row(fmt::format("tied_cross_entropy, smoothing {}, chunk {}", smoothing, chunk),
            {x({9, 5}), x({11, 5}), x({11}), index({9}, 11)}, [o](const Tensors& in) {
              Tensor predicted;
              const Tensor loss = tied_cross_entropy(in[0], in[1], in[2], in[3], o, &predicted);
              return Tensors{loss, predicted};
            });
    }
  t.row(
      "tied_cross_entropy without bias", {x({9, 8}), x({11, 8}), index({9}, 11)},
      [](const Tensors& in) { return tied_cross_entropy(in[0], in[1], {}, in[2], {.chunk = 2}); });
}

std::vector<OpCase> all_rows() {
  Table table;
  add_elementwise(table);
  add_layout(table);
  add_reductions(table);
  add_matrix(table);
  add_network(table);
  add_sequence(table);
  add_attention(table);
  return table.take();
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> rows = all_rows();
  return rows;
}

std::vector<float> input_values(const Input& input, size_t which) {
  const auto n = static_cast<size_t>(input.shape.numel());
  // Evenly spread, visited with a stride that has no factor in common with n.
  size_t stride = n * 5 / 8 + which + 1;
  const auto coprime = [&] { return std::gcd(stride, n) == 1; };
  while (n > 1 && !coprime()) ++stride;
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const auto place = static_cast<float>((i * stride + which) % n) + 0.37f;
    float v = input.low + (input.high - input.low) * place / static_cast<float>(n);
    if (!is_float(input.dtype)) {
      v = std::floor(v);
    } else if (constexpr float margin = 0.02f; n < 1000 && std::abs(v - std::round(v)) < margin) {
      v = std::round(v) + (v < std::round(v) ? -margin : margin);
    }
    values[i] = v;
  }
  return values;
}

}  // namespace rw::test
