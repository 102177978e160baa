// Shared heads, windows, slopes, learned masks and positions, compared with the same from plain
// ops.
#include <cmath>

#include "ops/network/positions.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

struct AttentionForm {
  int64_t batch, heads, key_heads, queries, keys, dim;
  AttentionOptions options;
  bool has_mask = false;
};

// Returns the bias of the scores: -infinity where the query does not see the key, and the slopes.
Tensor bias_of(const AttentionForm& f, const std::vector<float>& slopes) {
  std::vector<float> values;
  const int64_t shift = f.options.lower_right ? f.keys - f.queries : 0;
  for (int64_t h = 0; h < f.heads; ++h)
    for (int64_t i = 0; i < f.queries; ++i)
      for (int64_t j = 0; j < f.keys; ++j) {
        const int64_t behind = i + shift - j;
        const bool seen = (!f.options.causal || behind >= 0) &&
                          (f.options.window == 0 || std::abs(behind) < f.options.window);
        const float slope = slopes.empty() ? 0 : slopes[static_cast<size_t>(h)];
        values.push_back(seen ? -slope * static_cast<float>(std::abs(behind)) : -1e30f);
      }
  return tensor(values, {1, f.heads, f.queries, f.keys});
}

Tensor composed_form(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
  const int64_t group = q.size(1) / k.size(1), dim = q.size(3);
  const auto repeated = [&](const Tensor& t) {
    const Tensor wide = cast(t, DType::f32);
    return reshape(expand(unsqueeze(wide, 2), {t.size(0), t.size(1), group, t.size(2), t.size(3)}),
                   {t.size(0), t.size(1) * group, t.size(2), t.size(3)});
  };
  const Tensor scores = matmul(cast(q, DType::f32), transpose(repeated(k), 2, 3)) /
                        std::sqrt(static_cast<float>(dim));
  return cast(matmul(softmax(scores + bias), repeated(v)), q.dtype());
}

void compare_form(const AttentionForm& f, DType dtype, const std::string& what) {
  OpCase row;
  row.inputs = {{{f.batch, f.heads, f.queries, f.dim}},
                {{f.batch, f.key_heads, f.keys, f.dim}},
                {{f.batch, f.key_heads, f.keys, f.dim}}};
  const Tensors made = make_inputs(row, dtype);
  const auto fresh = [&] {
    Tensors inputs;
    for (const Tensor& t : made) inputs.push_back(t.detach().set_requires_grad());
    if (f.has_mask) {
      const Shape shape = {1, f.heads, f.queries, f.keys};
      inputs.push_back(tensor(some_values(static_cast<int>(shape.numel())), shape));
      inputs.back().set_requires_grad();
    }
    return inputs;
  };
  const std::vector<float> slopes =
      f.options.alibi ? f.options.alibi.to_vector() : std::vector<float>();
  const Evaluated fused = evaluate(fresh(), [&](const Tensors& in) {
    return Tensors{attention(in[0], in[1], in[2], f.options, f.has_mask ? in[3] : Tensor())};
  });
  const Evaluated plain = evaluate(fresh(), [&](const Tensors& in) {
    const Tensor bias = bias_of(f, slopes);
    return Tensors{composed_form(in[0], in[1], in[2], f.has_mask ? bias + in[3] : bias)};
  });
  // Both round weights and their gradients to f16, in different places.
  const double tolerance = dtype == DType::f16 ? 3e-2 : 2e-4;
  CHECK_MESSAGE(largest_error(fused.outputs[0], plain.outputs[0]) < tolerance, what);
  for (size_t i = 0; i < fused.gradients.size(); ++i)
    CHECK_MESSAGE(largest_error(fused.gradients[i], plain.gradients[i]) < tolerance,
                  what << ": gradient " << i);
}

}  // namespace

TEST_CASE("attention forms: equal their compositions, also over several tiles") {
  on_each_device([] {
    const AttentionOptions band{.causal = true, .window = 40, .lower_right = true};
    const AttentionOptions slopes{.causal = true, .alibi = alibi_slopes(6)};
    const std::pair<const char*, AttentionForm> forms[] = {
        {"shared heads", {2, 6, 2, 33, 150, 40, {}}},
        {"one head of keys", {1, 4, 1, 150, 33, 24, {.causal = true}}},
        {"window", {1, 2, 2, 200, 200, 16, {.window = 20}}},
        {"causal window", {1, 4, 2, 150, 210, 16, band}},
        {"lower right", {2, 2, 1, 70, 150, 16, {.causal = true, .lower_right = true}}},
        {"slopes", {2, 6, 3, 70, 70, 16, slopes}},
        {"slopes both ways", {1, 6, 6, 40, 90, 16, {.alibi = alibi_slopes(6)}}},
        {"mask", {3, 4, 2, 70, 150, 16, {}, true}},
        {"mask in a band", {2, 4, 1, 70, 150, 16, band, true}}};
    for (const DType dtype : {DType::f32, DType::f16})
      for (const auto& [what, form] : forms)
        compare_form(form, dtype, fmt::format("{} {}", what, name(dtype)));
  });
}

TEST_CASE("attention forms: a window's work does not read what lies outside") {
  on_each_device([] {
    // NaN outside of the window would reach the sums if it were read.
    const int64_t length = 600;
    std::vector<float> values(static_cast<size_t>(length) * 8, NAN);
    std::fill(values.end() - 300 * 8, values.end(), 1.0f);
    const Tensor k = tensor(values, {1, 1, length, 8}), q = ones({1, 1, 1, 8});
    const Tensor y = attention(q, k, k, {.causal = true, .window = 16, .lower_right = true});
    for (const float v : y.to_vector()) CHECK(v == doctest::Approx(1));
  });
}

TEST_CASE("attention forms: more batch elements and heads than a thread has time for") {
  on_each_device([] {
    // The mask's gradient is a sum of 2400 terms, too many for one thread of some drivers. With
    // REWIND_LIKE_GPU, a CPU driver gets kernels whose sums are not split for it.
    const DeviceInfo& info = default_device()->info();
    const int64_t batch = info.is_cpu || info.backend == "reference" ? 600 : 200, heads = 4;
    const Tensor q = zeros({batch, heads, 1, 64}), k = zeros({batch, heads, 2, 64});
    Tensor v = tensor(some_values(128), {1, 1, 2, 64});
    v = contiguous(expand(v, {batch, heads, 2, 64}));
    const auto gradient = [&](int64_t count) {
      Tensor mask = zeros({1, 1, 1, 2}).set_requires_grad();
      const auto part = [&](const Tensor& t) { return slice(t, 0, 0, count); };
      sum(attention(part(q), part(k), part(v), {}, mask)).backward();
      Tensor square_mask = zeros({1, 1, 2, 2}).set_requires_grad();
      const Tensor two = concat({part(q), part(q)}, 2);
      sum(attention(two, part(k), part(v), {}, square_mask)).backward();
      const std::vector<float> rows = square_mask.grad().to_vector();
      CHECK(rows[0] == doctest::Approx(mask.grad().to_vector()[0]).epsilon(1e-4));
      return mask.grad().to_vector();
    };
    const std::vector<float> all = gradient(batch), one = gradient(1);
    for (size_t i = 0; i < 2; ++i)
      CHECK(all[i] == doctest::Approx(double(batch) * one[i]).epsilon(1e-3));
  });
}

TEST_CASE("attention forms: a window of one key gives its value") {
  on_each_device([] {
    const Tensor q = tensor(some_values(2 * 70 * 8), {1, 2, 70, 8});
    const Tensor v = tensor(some_values(2 * 70 * 8, 5), {1, 2, 70, 8});
    CHECK(largest_error(attention(q, q, v, {.window = 1}).to_vector(), v.to_vector()) < 1e-6);
  });
}

TEST_CASE("attention forms: slopes as published") {
  on_each_device([] {
    CHECK(alibi_slopes(8).to_vector() == std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f,
                                                            0.015625f, 0.0078125f, 0.00390625f});
    // Those of 2 heads, then the first of 4.
    const std::vector<float> three = alibi_slopes(3).to_vector();
    CHECK(three == std::vector<float>{0.0625f, 0.00390625f, 0.25f});
    CHECK_THROWS_AS(alibi_slopes(0), ValueError);
  });
}

TEST_CASE("rotary: products depend on the distance alone, and the turn is the formula's") {
  on_each_device([] {
    const Tensor q = tensor(some_values(16), {1, 1, 1, 16});
    const Tensor k = tensor(some_values(16, 3), {1, 1, 1, 16});
    for (const bool interleaved : {false, true}) {
      const auto product = [&](int64_t a, int64_t b) {
        const auto at = [&](const Tensor& t, int64_t position) {
          return rotary(t, {.offset = position, .interleaved = interleaved});
        };
        return sum(at(q, a) * at(k, b)).item();
      };
      CHECK(product(105, 100) == doctest::Approx(product(5, 0)).epsilon(1e-4));
      CHECK(product(5, 0) != doctest::Approx(product(6, 0)).epsilon(1e-4));
      const std::vector<float> x = q.to_vector(),
                               y = rotary(q, {.offset = 3, .interleaved = interleaved}).to_vector();
      for (size_t i = 0; i < 8; ++i) {
        const double angle = 3 * std::pow(10000.0, -double(i) / 8);
        const size_t a = interleaved ? 2 * i : i, b = interleaved ? a + 1 : i + 8;
        CHECK(y[a] ==
              doctest::Approx(x[a] * std::cos(angle) - x[b] * std::sin(angle)).epsilon(1e-5));
        CHECK(y[b] ==
              doctest::Approx(x[b] * std::cos(angle) + x[a] * std::sin(angle)).epsilon(1e-5));
      }
    }
    CHECK_THROWS_AS(rotary(zeros({1, 1, 2, 5})), ShapeError);
    CHECK_THROWS_AS(rotary(zeros({2, 4})), ShapeError);
    CHECK_THROWS_AS(rotary(zeros({1, 1, 2, 4}, DType::i32)), DTypeError);
    CHECK_THROWS_AS(rotary(zeros({1, 1, 2, 4}), {.offset = -1}), ValueError);
    CHECK_THROWS_AS(rotary(zeros({1, 1, 2, 4}), {.theta = 0}), ValueError);
  });
}

TEST_CASE("rotary: a schedule's angles are those of f32 at position 100 000, and its scale holds") {
  on_each_device([] {
    const std::vector<float> schedule = {1, 0.137f, 0.0191f, 2e-5f};
    const Tensor frequencies = tensor(schedule, {4});
    const std::vector<float> x = some_values(8);
    const RotaryOptions options{.offset = 100000, .frequencies = frequencies, .scale = 1.5f};
    const std::vector<float> y = rotary(tensor(x, {1, 1, 1, 8}), options).to_vector();
    for (size_t i = 0; i < 4; ++i) {
      // Hugging Face's angle is this product, rounded; devices may round it or not.
      const double angle = 100000.0 * double{schedule[i]};
      const double tolerance = 2e-6 + 8 * std::abs(angle - double{std::nextafter(float(angle), 0)});
      CHECK(std::abs(y[i] - 1.5 * (x[i] * std::cos(angle) - x[i + 4] * std::sin(angle))) <
            tolerance);
      CHECK(std::abs(y[i + 4] - 1.5 * (x[i + 4] * std::cos(angle) + x[i] * std::sin(angle))) <
            tolerance);
    }
    const Tensor two = zeros({1, 1, 2, 4});
    CHECK_THROWS_AS(rotary(two, {.frequencies = frequencies}), ShapeError);
    CHECK_THROWS_AS(rotary(two, {.frequencies = zeros({2}, DType::f16)}), DTypeError);
    CHECK_THROWS_AS(rotary(two, {.frequencies = zeros({2}).set_requires_grad()}), AutogradError);
    CHECK_THROWS_AS(rotary(two, {.scale = NAN}), ValueError);
  });
}

TEST_CASE("rotary: the gradient turns back" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const Tensor x = tensor(some_values(32), {1, 2, 2, 8}).set_requires_grad();
  const Values dy = some_values(32, 3);
  sum(rotary(x, {.offset = 3}) * tensor(dy, {1, 2, 2, 8})).backward();
  CHECK(largest_difference(rotary(x.grad(), {.offset = 3}).to_vector(), {dy.begin(), dy.end()}) <
        1e-5);
}

TEST_CASE("attention forms: refuse what they cannot do") {
  on_each_device([] {
    const Tensor q = zeros({2, 4, 3, 8}), k = zeros({2, 2, 5, 8}), odd = zeros({2, 3, 5, 8});
    CHECK_THROWS_AS(attention(q, odd, odd), ShapeError);
    CHECK_THROWS_AS(attention(q, k, k, {.window = -1}), ValueError);
    CHECK_THROWS_AS(attention(q, k, k, {.alibi = zeros({3})}), ShapeError);
    CHECK_THROWS_AS(attention(q, k, k, {.alibi = zeros({4}, DType::f16)}), DTypeError);
    CHECK_THROWS_AS(attention(q, k, k, {.alibi = zeros({4})}, zeros({3, 5})), ValueError);
    CHECK_THROWS_AS(attention(q, k, k, {.alibi = zeros({4}).set_requires_grad()}), AutogradError);
    CHECK_THROWS_AS(attention(q, k, k, {}, zeros({3, 4})), ShapeError);
    CHECK_THROWS_AS(attention(q, k, k, {}, zeros({1, 2, 4, 3, 5})), ShapeError);
  });
}

}  // namespace rw::test
