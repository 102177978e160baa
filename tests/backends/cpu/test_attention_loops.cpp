// The vector loops of attention, compared with those of the reference.
#include <doctest/doctest.h>

#include <cmath>

#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

enum class Mask { none, all, keys, heads, batches };

struct Heads {
  uint32_t batch, heads, queries, keys, dim, group = 1, flags = 0, window = 0;
  Mask mask = Mask::none;
  float keep = 1;
};
constexpr uint32_t causal = ATTENTION_CAUSAL, masked = ATTENTION_MASK,
                   has_lengths = ATTENTION_LENGTHS, has_starts = ATTENTION_STARTS;
constexpr Heads head_cases[] = {
    {1, 1, 1, 1, 8},
    {2, 3, 5, 7, 8},
    {2, 4, 70, 131, 24, 2, causal},
    {1, 2, 131, 70, 64, 1, causal | ATTENTION_LOWER_RIGHT},
    {3, 2, 65, 66, 40, 1, has_lengths},
    {2, 2, 33, 97, 64, 1, masked, 0, Mask::all},
    {2, 2, 33, 97, 16, 1, masked, 0, Mask::keys},
    {2, 2, 33, 97, 16, 1, masked, 0, Mask::heads},
    {2, 2, 70, 97, 16, 1, masked | causal, 0, Mask::batches},
    {1, 4, 70, 97, 16, 1, ATTENTION_ALIBI},
    {2, 2, 150, 150, 16, 1, causal, 20},
    {2, 2, 150, 150, 16, 1, 0, 20},
    {2, 2, 70, 130, 32, 1, 0, 0, Mask::none, 0.8f},
    {2, 6, 70, 130, 32, 3, masked | causal | has_lengths, 0, Mask::all, 0.8f},
    {2, 6, 1, 200, 64, 3, causal | ATTENTION_LOWER_RIGHT | has_lengths},
    {2, 2, 150, 150, 16, 1, causal | has_starts},
    {2, 6, 70, 130, 32, 3, masked | has_starts, 0, Mask::all, 0.8f},
    {3, 2, 1, 70, 8, 1, has_starts},
    {1, 4, 1, 70, 224, 2, causal | ATTENTION_LOWER_RIGHT},
    {2, 2, 1, 131, 40, 1, masked, 0, Mask::all, 0.8f},
    {1, 2, 1, 70, 20, 1, ATTENTION_ALIBI},
    {1, 1, 3, 66, 256}};

AttentionParams attention_params(const Heads& h) {
  const uint32_t key_heads = h.heads / h.group, keys = h.keys, queries = h.queries;
  AttentionParams p{};
  p.batch = h.batch, p.heads = h.heads, p.queries = queries, p.keys = keys;
  p.head = ATTENTION_HEAD(h.dim, h.flags, h.group);
  p.window = h.window > 0 ? h.window : queries + keys;
  const uint32_t q[] = {queries * h.heads * h.dim, h.dim, h.heads * h.dim};
  const uint32_t k[] = {keys * key_heads * h.dim, h.dim, key_heads * h.dim};
  for (int i = 0; i < 3; ++i) p.q_stride[i] = q[i], p.k_stride[i] = p.v_stride[i] = k[i];
  const uint32_t heads = h.mask == Mask::all ? h.heads : 1;
  if (h.mask == Mask::all || h.mask == Mask::batches) p.mask_stride[0] = heads * queries * keys;
  if (h.mask == Mask::keys) p.mask_stride[0] = keys;
  if (h.mask == Mask::all || h.mask == Mask::heads) p.mask_stride[1] = queries * keys;
  if (h.mask != Mask::none && h.mask != Mask::keys) p.mask_stride[2] = keys;
  if ((h.flags & ATTENTION_ALIBI) != 0) p.mask_stride[1] = 1;
  p.scale = 1 / std::sqrt(static_cast<float>(h.dim));
  p.keep = h.keep, p.seed_lo = 5, p.seed_hi = 6, p.counter = 7;
  return p;
}

// Texts of 11 keys and more, as rows have them; in the second batch element, one of all keys.
LoopArgument starts_of(const Heads& h) {
  LoopArgument all{uint64_t{h.batch} * h.queries, DType::i32, Fill::given};
  for (uint32_t i = 0; i < h.batch; ++i)
    for (uint32_t query = 0; query < h.queries; ++query)
      all.values.push_back(static_cast<float>(i == 1 ? 0 : query / (11 + 60 * i) * (11 + 60 * i)));
  return all;
}

LoopArgument lengths_of(const Heads& h) {
  if ((h.flags & has_starts) != 0) return starts_of(h);
  LoopArgument all{h.batch, DType::i32, Fill::given};
  for (uint32_t i = 0; i < h.batch; ++i)
    all.values.push_back(static_cast<float>(i == 0 ? h.keys * 2 / 3 : i == 1 ? 0 : h.keys + 5));
  return all;
}

// Returns lse and delta of each query, as gradients read them: no score is much above its lse.
LoopArgument stats_of(uint64_t rows) {
  LoopArgument stats{2 * rows, f32, Fill::given};
  for (uint64_t i = 0; i < rows; ++i)
    stats.values.insert(stats.values.end(), {8.0f, 0.1f * static_cast<float>(i % 7)});
  return stats;
}

void check_heads(const Heads& h, DType dtype) {
  const AttentionParams p = attention_params(h);
  const uint64_t queries = uint64_t{h.batch} * h.queries * h.heads * h.dim;
  const uint64_t keys = uint64_t{h.batch} * h.keys * (h.heads / h.group) * h.dim;
  const uint64_t rows = uint64_t{h.batch} * h.heads * h.queries;
  const bool has_slopes = (h.flags & ATTENTION_ALIBI) != 0;
  const LoopArgument q{queries, dtype}, k{keys, dtype},
      mask{rows * h.keys, f32, has_slopes ? Fill::positive : Fill::numbers};
  const LoopArgument length = lengths_of(h), y{queries, dtype};
  check_loop({"attention", {q, k, k, mask, length, y, {rows}}, {}, 3e-5}, p);
  const LoopArgument stats = stats_of(rows);
  check_loop({"attention_dq", {q, k, k, y, stats, mask, length, y}, {}, 3e-5}, p);
  check_loop({"attention_dkv", {q, k, k, y, stats, mask, length, {2 * keys, dtype}}, {}, 3e-5}, p);
  check_loop(
      {"attention_grad", {q, k, k, y, stats, mask, length, {2 * keys + queries, dtype}}, {}, 3e-5},
      p);
  if (h.mask != Mask::none)
    check_loop({"attention_dmask", {q, k, k, y, stats, mask, length, {rows * h.keys}}, {}, 3e-5},
               p);
  check_loop({"attention_delta", {y, q, {rows}, {2 * rows}}, {}, 3e-5},
             AttentionDeltaParams{{}, static_cast<uint32_t>(rows), h.heads, h.queries, h.dim});
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu loops: attention and its gradients") {
  for (const DType dtype : {f32, DType::f16, DType::bf16})
    for (const Heads& h : head_cases) {
      CAPTURE(h.queries);
      CAPTURE(h.keys);
      CAPTURE(h.flags);
      check_heads(h, dtype);
    }
}

TEST_SUITE_END();
