// Normalisation, pooling, losses, indexing, random, sequences, attention.
#include <cmath>
#include <tuple>

#include "ops/losses/losses.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

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
    t.row(fmt::format("batch_norm {}", shape.str()), {x(shape), learned({c}), learned({c}, -1, 1)},
          [](const Tensors& in) { return batch_norm(in[0], in[1], in[2], 1e-3f).y; });
    t.row(fmt::format("batch_norm_with {}", shape.str()),
          {x(shape), statistic({c}, -1, 1), statistic({c}, 0.5f, 2), learned({c}),
           learned({c}, -1, 1)},
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
  t.row("full", {}, [](const Tensors&) {
    return Tensors{full({3, 5}, 1.5f), full({5}, 3, DType::u8)};
  });
  t.row("zeros", {}, [](const Tensors&) { return zeros({7}); });
  t.row("ones", {}, [](const Tensors&) { return ones({2, 3}, DType::f16); });
  t.row("zeros_like", {constant({2, 3})}, [](const Tensors& in) { return zeros_like(in[0]); });
}

// ---- group and instance norm: channels that move in words and others, runs of rows that one
// thread sums and several, 1 to 8 channels joined by a thread, moments in one level and two
static void add_group_norms(Table& t) {
  const auto row = [&](const Shape& shape, int64_t groups) -> OpCase& {
    const int64_t c = shape.at(-1);
    return t.row(fmt::format("group_norm {} in {}", shape.str(), groups),
                 {x(shape), learned({c}), learned({c}, -1, 1)},
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
  t.row("group_norm of one large group", {x({1, 300, 300, 4}), learned({4}), learned({4}, -1, 1)},
        [](const Tensors& in) { return square(group_norm(in[0], 1, in[1], in[2])); });
  row({3000, 45}, 3).f32_tolerance = 4e-5;  // in slices of samples, sums of both signs
  t.row("group_norm without weight", {x({2, 3, 6})},
        [](const Tensors& in) { return group_norm(in[0], 2); });
  for (const Shape& shape : {Shape{2, 5, 6, 7}, Shape{2, 67, 8}}) {
    const int64_t c = shape.at(-1);
    t.row(fmt::format("instance_norm {}", shape.str()),
          {x(shape), learned({c}), learned({c}, -1, 1)},
          [](const Tensors& in) { return instance_norm(in[0], in[1], in[2], 1e-3f); });
  }
}

// ---- normalisation of rows, recurrent networks
void add_sequence(Table& t) {
  for (const Shape& shape : {Shape{5, 24}, Shape{3, 2, 7}, Shape{2, 600}, Shape{70, 8}}) {
    const int64_t c = shape.at(-1);
    t.row(fmt::format("layer_norm {}", shape.str()), {x(shape), learned({c}), learned({c}, -1, 1)},
          [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-3f); });
    t.row(fmt::format("rms_norm {}", shape.str()), {x(shape), learned({c})},
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
            {x({4, 2, 4 * h}), x({4 * h, h}, -1, 1), learned({4 * h}, -1, 1), x({2, h}, -1, 1),
             learned({2, h}, -1, 1)},
            [=](const Tensors& in) {
              const LstmResult r = lstm(in[0], in[1], in[2], in[3], in[4], reverse);
              return Tensors{r.y, r.c};
            });
      t.row(name("gru"),
            {x({4, 2, 3 * h}), x({3 * h, h}, -1, 1), learned({3 * h}, -1, 1), x({2, h}, -1, 1)},
            [=](const Tensors& in) { return gru(in[0], in[1], in[2], in[3], reverse); });
    }
  t.row("lstm: the last state only", {x({3, 2, 16}), x({16, 4}), x({2, 4}), learned({2, 4})},
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

}  // namespace rw::test
