// Forms of attention in transformers: shared heads, windows, slopes, gradients of masks; positions.
#include "nn/weight_norm.h"
#include "ops/layout/unbind.h"
#include "ops/network/positions.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

namespace {

void add_shared_heads(Table& t) {
  for (const int64_t key_heads : {1, 2}) {
    const Shape q = {2, 4, 5, 16}, kv = {2, key_heads, 7, 16};
    for (const float p : {0.0f, 0.3f})
      t.row(fmt::format("attention of 4 heads over {}, dropout {}", key_heads, p),
            {x(q), x(kv), x(kv)}, [p](const Tensors& in) {
              return attention(in[0], in[1], in[2], {.causal = p > 0, .dropout = p});
            });
  }
  t.row("attention of 6 heads over 2, many keys",
        {x({1, 6, 19, 24}, -1, 1), x({1, 2, 75, 24}), x({1, 2, 75, 24})},
        [](const Tensors& in) { return attention(in[0], in[1], in[2]); });
}

void add_bands(Table& t) {
  const std::pair<const char*, AttentionOptions> bands[] = {
      {"a window of 3", {.window = 3}},
      {"a causal window of 2", {.causal = true, .window = 2}},
      {"causal to the lower right", {.causal = true, .lower_right = true}},
      {"a causal window of 3 to the lower right",
       {.causal = true, .dropout = 0.2f, .window = 3, .lower_right = true}}};
  for (const auto& [name, o] : bands)
    for (const auto& [queries, keys] : {std::pair{5, 9}, {9, 5}, {33, 70}}) {
      const Shape q = {1, 2, queries, 8}, kv = {1, 1, keys, 8};
      t.row(fmt::format("attention with {}, {} queries of {} keys", name, queries, keys),
            {x(q), x(kv), x(kv)},
            [o = o](const Tensors& in) { return attention(in[0], in[1], in[2], o); });
    }
}

void add_masks(Table& t) {
  const Shape q = {2, 4, 5, 8}, kv = {2, 2, 7, 8};
  for (const Shape& shape : {Shape{2, 4, 5, 7}, Shape{1, 4, 5, 7}, Shape{4, 5, 7}, Shape{5, 7},
                             Shape{2, 1, 5, 7}, Shape{2, 1, 1, 7}, Shape{7}})
    t.row(fmt::format("attention with a mask {} that is learned", shape.str()),
          {x(q), x(kv), x(kv), learned(shape, -1, 1)}, [](const Tensors& in) {
            return attention(in[0], in[1], in[2], {.causal = true, .dropout = 0.2f}, in[3]);
          });
  t.row("attention with a large mask that is learned",
        {x({2, 1, 19, 16}), x({2, 1, 70, 16}), x({2, 1, 70, 16}), learned({1, 1, 19, 70}, -1, 1)},
        [](const Tensors& in) {
          return attention(in[0], in[1], in[2], {.window = 20, .lower_right = true}, in[3]);
        });
  for (const Shape& shape : {Shape{4}, Shape{2, 4}})
    for (const bool causal : {false, true})
      t.row(fmt::format("attention with slopes {}, causal {}", shape.str(), causal),
            {x(q), x(kv), x(kv), statistic(shape, 0.1f, 1)}, [causal](const Tensors& in) {
              return attention(in[0], in[1], in[2],
                               {.causal = causal, .lower_right = causal, .alibi = in[3]});
            });
}

// Starts of texts of `length` tokens in rows [batch, queries].
Tensor text_starts(int64_t batch, int64_t queries, int64_t length) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i)
      starts.push_back(static_cast<int32_t>(i / (length + b) * (length + b)));
  return tensor(starts, {batch, queries});
}

void add_texts(Table& t) {
  for (const auto& [queries, keys] : {std::pair{7, 7}, {70, 70}, {90, 131}})
    for (const bool causal : {false, true}) {
      const Shape q = {2, 4, queries, 8}, kv = {2, 2, keys, 8};
      t.row(fmt::format("attention of texts, {} queries of {} keys, causal {}", queries, keys,
                        causal),
            {x(q), x(kv), x(kv)}, [=](const Tensors& in) {
              return attention(in[0], in[1], in[2],
                               {.causal = causal, .starts = text_starts(2, q[2], 3 + q[2] / 3)});
            });
    }
  t.row("attention of texts with a mask that is learned",
        {x({2, 2, 19, 16}), x({2, 2, 19, 16}), x({2, 2, 19, 16}), learned({1, 2, 19, 19}, -1, 1)},
        [](const Tensors& in) {
          return attention(in[0], in[1], in[2],
                           {.causal = true, .dropout = 0.2f, .starts = text_starts(2, 19, 8)},
                           in[3]);
        });
  t.row("attention of texts in a window", {x({1, 1, 40, 8}), x({1, 1, 40, 8}), x({1, 1, 40, 8})},
        [](const Tensors& in) {
          return attention(in[0], in[1], in[2],
                           {.causal = true, .window = 5, .starts = text_starts(1, 40, 13)});
        });
}

void add_positions(Table& t) {
  for (const bool interleaved : {false, true})
    for (const Shape& shape : {Shape{2, 3, 5, 8}, Shape{1, 2, 7, 6}, Shape{1, 1, 70, 64}})
      t.row(fmt::format("rotary of {}{}", shape.str(), interleaved ? ", interleaved" : ""),
            {x(shape)}, [interleaved](const Tensors& in) {
              return rotary(in[0], {.offset = 3, .interleaved = interleaved});
            });
  t.row("rotary of heads that lie inside", {x({2, 5, 3, 8})},
        [](const Tensors& in) { return rotary(transpose(in[0], 1, 2), {.theta = 500}); });
  const std::vector<float> schedule = {1, 0.25f, 0.03125f, 0.001f};
  t.row("rotary by a schedule, scaled", {x({2, 3, 5, 8})}, [schedule](const Tensors& in) {
    return rotary(in[0], {.offset = 7, .frequencies = tensor(schedule, {4}), .scale = 1.25f});
  });
  for (const bool interleaved : {false, true})
    t.row(fmt::format("rotary by positions{}", interleaved ? ", interleaved" : ""),
          {x({2, 3, 70, 8})}, [interleaved](const Tensors& in) {
            return rotary(in[0], {.positions = arange(70) - text_starts(2, 70, 9),
                                  .interleaved = interleaved});
          });
  t.row("alibi_slopes", {}, [](const Tensors&) {
    return Tensors{alibi_slopes(8), alibi_slopes(6)};
  });
  t.row("rotary of nothing", {x({0, 2, 3, 4})}, [](const Tensors& in) { return rotary(in[0]); });
}

void add_parts(Table& t) {
  for (const int axis : {0, 1, -1})
    t.row(fmt::format("unbind of axis {}", axis), {x({3, 4, 5})},
          [axis](const Tensors& in) { return unbind(in[0], axis); });
  t.row("unbind with parts that nobody reads", {x({2, 3, 5})}, [](const Tensors& in) {
    const std::vector<Tensor> parts = unbind(in[0], 1);
    return parts[2] * parts[0];
  });
  t.row("unbind of nothing", {x({2, 0})}, [](const Tensors& in) { return unbind(in[0]); });
  t.row("attention of a packed projection", {x({2, 5, 3, 2, 8})}, [](const Tensors& in) {
    std::vector<Tensor> qkv = unbind(in[0], 2);
    for (Tensor& part : qkv) part = transpose(std::move(part), 1, 2);
    return attention(qkv[0], qkv[1], qkv[2], {.causal = true});
  });
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 3, 3, 2}, Shape{1, 700}})
    t.row(fmt::format("weight_norm of {}", shape.str()), {x(shape, 0.3f, 2), x({shape[0]}, 1, 2)},
          [](const Tensors& in) { return weight_norm(in[0], in[1]); });
}

}  // namespace

void add_transformer(Table& t) {
  add_shared_heads(t);
  add_bands(t);
  add_masks(t);
  add_texts(t);
  add_positions(t);
  add_parts(t);
}

}  // namespace rw::test
