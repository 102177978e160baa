#include "backends/vulkan/passes/attention.h"

#include <fmt/format.h>

#include "backends/vulkan/device/shader_table.h"
#include "backends/vulkan/passes/copy.h"
#include "backends/vulkan/passes/reductions.h"
#include "core/base/error.h"
#include "shaders/params.h"

namespace rw::vulkan {

// Tiles of 64 rows need 32 KiB of shared memory and, for wide heads and gradients, more registers
// than Apple's GPUs have.
AttentionTile attention_tile(const Caps& caps, uint32_t dim, std::string_view kernel) {
  if (caps.few_registers) return {fmt::format("{}_tiled.TILE32", kernel), 32, 1};
  const bool is_wide = dim > 64, is_large = !is_wide && has_large_shared(caps);
  if (kernel != "attention") return {fmt::format("{}_tiled.TILE32", kernel), 32, is_wide ? 2u : 1u};
  if (is_large) return {"attention_tiled.TILE64", 64, 1};
  return {"attention_tiled.TILE32", 32, dim > 128 ? 4u : is_wide ? 2u : 1u};
}

AttentionTile attention_matrix_tile(const Caps& caps, DType dtype, uint32_t dim,
                                    std::string_view kernel, uint32_t rows, uint64_t heads) {
  const char* factors = dtype == DType::bf16 ? "bf16" : "f16";
  // Two threads or more share a row of 64 scores, which one of a GPU cannot hold in registers.
  const bool has_threads = caps.matrices.subgroup >= (caps.is_cpu ? 8u : 16u);
  const bool is_large = has_threads && !caps.few_registers && rows > 32 &&
                        divide_up(rows, 64) * heads >= caps.multiprocessors;
  return {fmt::format("{}_cooperative.FACTORS{}", kernel, factors), is_large ? 64u : 32u,
          (dim + 63) / 64};
}

// Their tiles need 31 KiB of shared memory. Where registers are few and subgroups of 8, their sums
// fill the registers.
bool attends_by_matrices(const Caps& caps, DType dtype) {
  const uint32_t needed = dtype == DType::f16 ? feature::cooperative : feature::cooperative_bf16;
  const bool has_registers = !caps.few_registers || caps.matrices.subgroup > 8;
  return is_half(dtype) && has_large_shared(caps) && has_registers && (caps.features & needed) != 0;
}

namespace {

using kernels::AttentionParams;

constexpr uint32_t dmask_rows = 4;  // of a tile of attention_dmask

// Without a subgroup shuffle, a thread computes four sums, one term after the other:
// attention_plain_dmask.comp.
bool is_plain(const Caps& caps) {
  return (caps.features & feature::shuffle) == 0;
}

// Stock lavapipe silently leaves a thread's loops after 65535 rounds in all (docs/kernels.md). This
// is how often there is room for `rounds` of them.
uint64_t most_turns(const Caps& caps, uint32_t rounds) {
  return caps.is_cpu ? 65535 / rounds : uint64_t{1} << 40;
}

// Checks that a thread has rounds enough for all keys or queries, `repeats` times.
void check_turns(const Caps& caps, const AttentionParams& p, uint32_t repeats) {
  const uint32_t dim = ATTENTION_DIM(p), columns = std::max(p.queries, p.keys);
  // A tile of keys takes its products by 16 dimensions at a time and 8 in each turn, its sums in
  // slices of at least 8 rows, and what lies between them; a gradient takes twice that.
  const uint32_t rounds = 2 * (3 * divide_up(dim, 16) + 2 * ATTENTION_TILE_COLUMNS / 8 + 16);
  const uint64_t most = most_turns(caps, rounds) / std::max(1u, repeats) * ATTENTION_TILE_COLUMNS;
  check<ShapeError>(columns <= most, "attention",
                    "this device takes at most {} queries and keys of {} dimensions, got {}", most,
                    dim, columns);
}

// Repeats the mask, [1, heads or 1, queries, keys], for each batch element.
Operand add_mask_by_batch(Passes& passes, const Caps& caps, AttentionParams& p,
                          const Operand& mask) {
  const uint32_t heads = p.mask_stride[1] ? p.heads : 1, keys = p.keys;
  const uint32_t one = heads * p.queries * keys;
  kernels::CopyParams copy{.n = p.batch * one, .rank = 4};
  copy.offset[0] = p.offset[5];
  const uint32_t shape[] = {p.batch, heads, p.queries, keys};
  const uint32_t from[] = {0, p.mask_stride[1], p.mask_stride[2], 1};
  const uint32_t to[] = {one, p.queries * keys, keys, 1};
  std::copy_n(shape, 4, copy.shape);
  std::copy_n(from, 4, copy.x_stride);
  std::copy_n(to, 4, copy.y_stride);
  const Operand own = passes.scratch(copy.n, DType::f32);
  add_copy(passes, caps, copy, mask, written(own));
  p.offset[5] = 0;
  p.mask_stride[0] = one;
  if (p.mask_stride[1]) p.mask_stride[1] = p.queries * keys;
  p.mask_stride[2] = keys;
  return own;
}

// attention_dmask: a tile of the sums has `dmask_rows` rows by four columns of each lane.
void add_mask_gradient(Passes& passes, const Caps& caps, const KernelCall& call) {
  auto p = call.params_as<AttentionParams>();
  const uint32_t dim = ATTENTION_DIM(p), lanes = caps.subgroup_size;
  const uint32_t plain = 4 * (15 + divide_up(dim, 32)), products = dim / 4 + dim / (4 * lanes) + 1;
  const uint64_t turns = most_turns(caps, is_plain(caps) ? plain : 2 * products + dmask_rows + 1);
  const bool sums_rows = p.mask_stride[2] == 0;
  const uint64_t row_tiles = divide_up(p.queries, dmask_rows);
  const uint32_t summed_heads = p.mask_stride[1] == 0 ? p.heads : 1;
  Operand mask = operand(call, 5), result = operand(call, 7);
  // If a thread has not rounds enough for all batch elements, each has a sum of its own at first.
  const bool by_batch =
      !sums_rows && p.mask_stride[0] == 0 && uint64_t{p.batch} * summed_heads > turns;
  const uint32_t offset = p.offset[7];
  if (by_batch) mask = add_mask_by_batch(passes, caps, p, mask);
  const uint32_t batches = sums_rows || p.mask_stride[0] ? p.batch : 1;
  const uint32_t heads = sums_rows || p.mask_stride[1] ? p.heads : 1;
  const uint64_t terms = sums_rows ? (is_plain(caps) ? p.queries : row_tiles)
                                   : uint64_t{batches == 1 ? p.batch : 1} * summed_heads;
  check<ShapeError>(
      terms <= turns, "attention",
      "this device sums the gradient of a mask over at most {} queries or heads, got {}",
      turns * (sums_rows && !is_plain(caps) ? dmask_rows : 1), sums_rows ? p.queries : p.heads);
  const uint32_t sums = batches * heads * (sums_rows ? 1 : p.queries) * p.keys;
  const Operand parts = by_batch ? passes.scratch(sums, DType::f32) : result;
  if (by_batch) p.offset[7] = 0;
  const uint64_t tiles =
      uint64_t{batches} * heads * (sums_rows ? 1 : row_tiles) * divide_up(p.keys, 4 * lanes);
  passes.add("attention_dmask",
             {operand(call, 0), operand(call, 1), operand(call, 2), operand(call, 3),
              operand(call, 4), mask, operand(call, 6), written(parts)},
             p, tiles * lanes, {1}, call.flops);
  if (by_batch) add_sum(passes, caps, p.batch, sums / p.batch, parts, result, offset);
}

}  // namespace

void add_attention(Passes& passes, const Caps& caps, const KernelCall& call) {
  if (call.kernel == "attention_dmask") return add_mask_gradient(passes, caps, call);
  const auto p = call.params_as<AttentionParams>();
  const bool of_keys = call.kernel == "attention_dkv";
  const uint32_t dim = ATTENTION_DIM(p), repeats = of_keys ? std::max(1u, ATTENTION_GROUP(p)) : 1;
  const uint32_t rows = of_keys ? p.keys : p.queries;
  check_turns(caps, p, repeats);
  const DType dtype = call.bindings[0].dtype;
  const uint64_t heads = uint64_t{p.batch} * (p.heads / repeats);
  const uint32_t has_mask = (ATTENTION_FLAGS(p) & ATTENTION_MASK) != 0;
  if (attends_by_matrices(caps, dtype)) {
    const AttentionTile tile = attention_matrix_tile(caps, dtype, dim, call.kernel, rows, heads);
    passes.add_whole(tile.module, call, heads * divide_up(rows, tile.rows),
                     {has_mask, tile.results, tile.rows / 2});
  } else {
    const AttentionTile tile = attention_tile(caps, dim, call.kernel);
    passes.add_whole(tile.module, call,
                     heads * divide_up(rows, tile.rows) * divide_up(dim, tile.results * 64),
                     {has_mask, tile.results});
  }
}

}  // namespace rw::vulkan
