// Fused attention and the chunked cross entropy, compared with the same from plain ops.
#include <cmath>

#include "core/autograd/checkpoint.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

struct Sizes {
  int64_t batch, heads, queries, keys, dim;
};

Tensor composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, float scale,
                          const Tensor& mask, const Tensor& factor = {}) {
  const auto wide = [](const Tensor& t) { return cast(t, DType::f32); };
  Tensor scores = matmul(wide(q), transpose(wide(k), 2, 3)) * scale;
  if (mask) scores = scores + mask;
  Tensor weights = softmax(scores);
  if (factor) weights = weights * factor;
  return cast(matmul(weights, wide(v)), q.dtype());
}

// Returns 0 where query i sees key j, else -infinity.
Tensor visible(const Sizes& s, bool causal, const std::vector<int32_t>& lengths) {
  std::vector<float> values;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t i = 0; i < s.queries; ++i)
      for (int64_t j = 0; j < s.keys; ++j) {
        const bool seen = (!causal || j <= i) && (lengths.empty() || j < lengths[b]);
        values.push_back(seen ? 0 : -INFINITY);
      }
  return tensor(values, {s.batch, 1, s.queries, s.keys});
}

// Returns q, k, v with values that sharpen the softmax a little.
Tensors make_qkv(const Sizes& s, DType dtype) {
  OpCase row;
  row.inputs = {{{s.batch, s.heads, s.queries, s.dim}},
                {{s.batch, s.heads, s.keys, s.dim}},
                {{s.batch, s.heads, s.keys, s.dim}}};
  return make_inputs(row, dtype);
}

template <class F, class G>
void compare_with_plain(const Tensors& inputs, F&& fused, G&& plain, double tolerance,
                        const std::string& what) {
  const auto fresh = [&] {
    Tensors copies;
    for (const Tensor& t : inputs) copies.push_back(t.detach().set_requires_grad());
    return copies;
  };
  const Evaluated actual = evaluate(fresh(), fused), expected = evaluate(fresh(), plain);
  const auto check = [&](const std::vector<float>& a, const std::vector<float>& e, size_t k) {
    double difference = 0, scale = 0.1;  // one visible key: the gradients of q and k are zero
    for (size_t i = 0; i < e.size(); ++i) {
      difference += std::pow(double{a.at(i)} - e[i], 2);
      scale += double{e[i]} * e[i];
    }
    CHECK_MESSAGE(std::sqrt(difference / scale) <= tolerance, what << ": value " << k);
  };
  check(actual.outputs[0], expected.outputs[0], 0);
  for (size_t k = 0; k < inputs.size(); ++k)
    check(actual.gradients[k], expected.gradients[k], k + 1);
}

double attention_tolerance(DType dtype) {
  return dtype == DType::f16 ? 4e-3 : 2e-5;  // both sides round large scores
}

const Sizes kSizes[] = {{2, 2, 7, 7, 16},   {1, 3, 65, 65, 32}, {2, 1, 1, 65, 64},
                        {1, 2, 65, 7, 80},  {2, 2, 33, 40, 1},  {1, 1, 1, 1, 8},
                        {1, 1, 20, 37, 256}};

std::string str(const Sizes& s) {
  return fmt::format("B {} H {} S {} T {} D {}", s.batch, s.heads, s.queries, s.keys, s.dim);
}

}  // namespace

TEST_CASE("attention: equals its composition") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16})
      for (const Sizes& s : kSizes)
        for (const bool causal : {false, true})
          for (const bool padded : {false, true}) {
            std::vector<int32_t> lengths;
            for (int64_t b = 0; padded && b < s.batch; ++b)
              lengths.push_back(static_cast<int32_t>(std::max<int64_t>(1, s.keys - 3 - 2 * b)));
            const Tensor mask = visible(s, causal, lengths);
            const Tensor device_lengths = padded ? tensor(lengths, {s.batch}) : Tensor();
            const float scale = 0.7f / std::sqrt(static_cast<float>(s.dim));
            compare_with_plain(
                make_qkv(s, dtype),
                [&](const Tensors& in) {
                  AttentionOptions o{.scale = scale, .causal = causal};
                  return Tensors{attention(in[0], in[1], in[2], o, {}, device_lengths)};
                },
                [&](const Tensors& in) {
                  return Tensors{composed_attention(in[0], in[1], in[2], scale, mask)};
                },
                attention_tolerance(dtype),
                fmt::format("{} {} causal {} padded {}", str(s), name(dtype), causal, padded));
          }
  });
}

TEST_CASE("attention: masks of every broadcast, with infinities") {
  on_each_device([] {
    const Sizes s{2, 3, 9, 35, 24};
    for (const Shape& shape :
         {Shape{2, 3, 9, 35}, Shape{1, 3, 1, 35}, Shape{2, 1, 1, 35}, Shape{1, 1, 9, 35}}) {
      std::vector<float> values = input_values({shape}, 3);
      for (size_t i = 0; i < values.size(); i += 5) values[i] = -INFINITY;
      const Tensor mask = tensor(values, shape);
      const float scale = 1 / std::sqrt(24.0f);
      compare_with_plain(
          make_qkv(s, DType::f32),
          [&](const Tensors& in) { return Tensors{attention(in[0], in[1], in[2], {}, mask)}; },
          [&](const Tensors& in) {
            return Tensors{composed_attention(in[0], in[1], in[2], scale, mask)};
          },
          attention_tolerance(DType::f32), shape.str());
    }
  });
}

TEST_CASE("attention: rows without a key are zero and have no gradient; not-a-number stays") {
  on_each_device([] {
    const Sizes s{2, 1, 5, 6, 8};
    const Tensor lengths = tensor(std::vector<int32_t>{0, 4}, {2});
    const Evaluated e = evaluate(make_qkv(s, DType::f32), [&](const Tensors& in) {
      return Tensors{attention(in[0], in[1], in[2], {}, {}, lengths)};
    });
    const auto all_zero = [](const std::vector<float>& v, size_t begin, size_t end) {
      return std::all_of(v.begin() + begin, v.begin() + end, [](float x) { return x == 0; });
    };
    CHECK(all_zero(e.outputs[0], 0, 40));
    CHECK(!all_zero(e.outputs[0], 40, 80));
    CHECK(all_zero(e.gradients[0], 0, 40));
    for (const int i : {1, 2}) {
      CHECK(all_zero(e.gradients[i], 0, 48));
      CHECK(all_zero(e.gradients[i], 48 + 32, 96));  // keys past the length
      CHECK(!all_zero(e.gradients[i], 48, 96));
    }
    const Tensor hidden = full({2, 1, 5, 6}, -INFINITY);
    Tensors in = make_qkv(s, DType::f32);
    const std::vector<float> y = attention(in[0], in[1], in[2], {}, hidden).to_vector();
    CHECK(all_zero(y, 0, y.size()));

    const Tensor nan = full({2, 1, 5, 8}, NAN);
    for (const float v : attention(nan, in[1], in[2]).to_vector()) CHECK(std::isnan(v));
    Tape::current()->clear();
  });
}

TEST_CASE("attention: dropout has its probability and the same mask in the gradient") {
  on_each_device([] {
    const Sizes s{2, 2, 37, 64, 64};
    const auto options = [](Generator& g) {
      return AttentionOptions{.dropout = 0.3f, .generator = &g};
    };
    Tensors in = make_qkv(s, DType::f32);
    // Values that are unit vectors give the weights themselves.
    std::vector<float> unit(static_cast<size_t>(s.keys * s.dim));
    for (int64_t i = 0; i < s.dim; ++i) unit[static_cast<size_t>(i * s.dim + i)] = 1;
    const Tensor identity = expand(tensor(unit, {1, 1, s.keys, s.dim}), in[2].shape());
    Tensor factor;
    {
      const NoGrad guard;
      Generator g(11);
      const Tensor weights = attention(in[0], in[1], identity);
      const Tensor dropped = attention(in[0], in[1], identity, options(g));
      factor = dropped / weights;
      int kept = 0;
      for (const float f : factor.to_vector()) {
        kept += f != 0;
        CHECK((f == 0 || std::abs(f - 1 / 0.7f) < 1e-3f));
      }
      CHECK(static_cast<double>(kept) / factor.numel() == doctest::Approx(0.7).epsilon(0.02));
      CHECK(attention(in[0], in[1], identity, options(g)).to_vector() != dropped.to_vector());
      g.seed(11);
      CHECK(attention(in[0], in[1], identity, options(g)).to_vector() == dropped.to_vector());
    }
    const Tensor exact = cast(greater(factor, full({}, 0.5f)), DType::f32) / 0.7f;
    compare_with_plain(
        in,
        [&](const Tensors& t) {
          Generator g(11);
          return Tensors{attention(t[0], t[1], t[2], options(g))};
        },
        [&](const Tensors& t) {
          return Tensors{composed_attention(t[0], t[1], t[2], 0.125f, {}, exact)};
        },
        attention_tolerance(DType::f32), "dropout");
  });
}

TEST_CASE("attention: reads a packed projection without copies and merges heads without one") {
  on_each_device([] {
    const Tensor packed = tensor(some_values(2 * 9 * 3 * 4 * 16), {2, 9, 3, 4, 16});
    const auto part = [&](int i) { return transpose(select(packed, 2, i), 1, 2); };
    Device& device = *default_device();
    const Tensor q = part(0), k = part(1), v = part(2);
    const uint64_t before = device.backend().stats().dispatches;
    const Tensor y = reshape(transpose(attention(q, k, v), 1, 2), {2, 9, 64});
    CHECK(device.backend().stats().dispatches == before + 1);
    CHECK(largest_error(y.to_vector(),
                        attention(contiguous(q), contiguous(k), contiguous(v)).to_vector()) >= 0);
    const Tensor dense = attention(contiguous(q), contiguous(k), contiguous(v));
    CHECK(y.to_vector() == reshape(transpose(dense, 1, 2), {2, 9, 64}).to_vector());
  });
}

TEST_CASE("attention: a checkpoint segment replays the same bits, dropout included") {
  on_each_device([] {
    const Sizes s{2, 2, 19, 19, 32};
    const auto run = [](bool segment) {
      return [segment](const Tensors& in) {
        Generator g(3);
        const CheckpointScope scope(segment);
        const Tensor y = attention(in[0] * 1.25f, in[1], in[2] * 0.5f,
                                   {.causal = true, .dropout = 0.2f, .generator = &g});
        return Tensors{square(y)};
      };
    };
    for (const DType dtype : {DType::f32, DType::f16})
      check_equal(evaluate(make_qkv(s, dtype), run(true)), evaluate(make_qkv(s, dtype), run(false)),
                  "segment");
  });
}

TEST_CASE("attention: memory grows with S, not with S squared") {
  on_each_device([] {
    const auto peak = [](int64_t length) {
      Device& device = *default_device();
      const Tensors in = make_qkv({1, 1, length, length, 8}, DType::f32);
      device.synchronize();
      device.reset_peak();
      const uint64_t live = device.memory_report().live;
      sum(attention(in[0], in[1], in[2])).backward();
      return device.memory_report().peak - live;
    };
    CHECK(peak(512) < 3 * peak(256));
    CHECK(peak(512) < 512 * 512 * 4 / 4);
  });
}

// A driver that leaves long loops early would lose the last keys.
TEST_CASE("attention: many keys") {
  on_each_device([] {
    const int64_t keys = 25000;
    std::vector<float> values(static_cast<size_t>(keys) * 8);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i / 8) / static_cast<float>(keys);
    const Tensor q = zeros({1, 1, 1, 8}).set_requires_grad();
    const Tensor k = tensor(values, {1, 1, keys, 8}), v = k.detach();
    const Tensor y = attention(q, k, v);  // equal weights: the mean
    for (const float x : y.to_vector()) CHECK(x == doctest::Approx(0.5).epsilon(1e-4));
    sum(y).backward();  // 8 times the variance of the values, scaled
    for (const float x : q.grad().to_vector())
      CHECK(x == doctest::Approx(8.0 / 12 / std::sqrt(8.0)).epsilon(1e-3));
  });
}

TEST_CASE("attention: refuses what it cannot do") {
  on_each_device([] {
    const Tensor q = zeros({1, 1, 4, 8}), k = zeros({1, 1, 5, 8});
    CHECK_THROWS_AS(attention(q, k, q), ShapeError);
    CHECK_THROWS_AS(attention(zeros({1, 1, 4, 264}), zeros({1, 1, 4, 264}), zeros({1, 1, 4, 264})),
                    ShapeError);
    CHECK_THROWS_AS(attention(q, k, k, {}, zeros({1, 1, 5, 4})), ShapeError);
    CHECK_THROWS_AS(attention(cast(q, DType::f16), k, k), DTypeError);
    CHECK_THROWS_AS(attention(q, k, k, {}, {}, zeros({1})), Error);
    CHECK_THROWS_AS(attention(q, k, k, {.dropout = 1}), ValueError);
  });
}

}  // namespace rw::test
