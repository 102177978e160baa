#include "backends/vulkan/passes/reductions.h"

#include <algorithm>

#include "shaders/params.h"

namespace rw::vulkan {

namespace {

using namespace kernels;

// Whether rows of `cols` elements lie in whole words. `offsets` are the tensors' offsets, or their
// bitwise or.
bool loads_words(uint32_t cols, uint32_t offsets) {
  return (cols | offsets) % REWIND_FLAT == 0;
}

// The longest runs that one pass sums: a workgroup shares rows, and at most a team shares columns.
constexpr uint64_t row_run = 8192, usual_column_run = 1024;

// How many of `count` rows a thread adds if `threads` threads lie across the columns: `usual`, or
// fewer if that leaves a GPU with too few threads; a divisor of `count` if there is one of about
// that size.
uint64_t column_run(const Caps& caps, uint64_t count, uint64_t threads, uint64_t usual) {
  constexpr uint64_t least = 8, threads_of_gpu = 1 << 18;
  if (caps.is_cpu || usual <= least) return usual;
  const uint64_t run = std::clamp(count * threads / threads_of_gpu, least, usual);
  for (uint64_t next = run; next < 2 * run && next <= usual; ++next)
    if (count % next == 0) return next;
  return run;
}

// The threads that take turns along a column of `count` rows: more where workgroups of 64 threads
// would leave multiprocessors idle.
uint32_t team_of(const Caps& caps, uint64_t count, uint64_t words) {
  if (caps.is_cpu) return 1;
  const bool is_idle = divide_up(words * REDUCE_TEAM, 64) < caps.multiprocessors;
  return is_idle && count >= LARGE_TEAM ? LARGE_TEAM : REDUCE_TEAM;
}

// How much of the columns one pass sums.
uint64_t column_run_of(const Caps& caps, const ReduceParams& p) {
  constexpr uint32_t few = 128;  // for a team
  const uint64_t threads = divide_up(uint64_t{p.outer} * p.inner, REWIND_FLAT);
  const uint64_t team = caps.is_cpu || p.inner % REWIND_FLAT != 0 ? 1 : REDUCE_TEAM;
  if (team > 1 && p.count <= few) return p.count;
  return team * column_run(caps, divide_up(p.count, team), threads * team, usual_column_run / team);
}

void add_level(Passes& passes, const Caps& caps, uint32_t op, const ReduceParams& p,
               const Operand& x, const Operand& y) {
  const uint64_t n = p.outer * divide_up(p.count, p.chunk) * p.inner;
  if (p.inner == 1) return passes.add("reduce_rows", {x, written(y)}, p, n, {op});
  const bool flat = loads_words(p.inner, p.offset[0]);
  const uint32_t team = flat ? team_of(caps, p.chunk, n / REWIND_FLAT) : 1;
  passes.add("reduce_columns", {x, written(y)}, p, (flat ? n / REWIND_FLAT : n) * team,
             {op, flat, team});
}

void add_levels(Passes& passes, const Caps& caps, uint32_t op, ReduceParams p, const Operand& x,
                const Operand& y) {
  const uint64_t run = p.inner == 1 ? row_run : column_run_of(caps, p);
  if (p.chunk < p.count || p.count <= run) return add_level(passes, caps, op, p, x, y);
  const auto chunks = static_cast<uint32_t>(divide_up(p.count, run));
  const Operand parts = passes.scratch(uint64_t{p.outer} * chunks * p.inner,
                                       is_float(x.dtype) ? DType::f32 : x.dtype);
  ReduceParams first = p;
  first.offset[1] = 0;
  first.chunk = static_cast<uint32_t>(run);
  first.scale = 1;
  add_level(passes, caps, op, first, x, parts);
  p.offset[0] = 0;
  p.count = p.chunk = chunks;
  add_levels(passes, caps, op, p, parts, y);
}

// Chunks of rows; `team` threads add up each of them for 8 columns.
struct Chunks {
  uint32_t rows, count, team = 1;  // rows of a chunk, chunks
  std::array<uint32_t, 3> threads;
};

// Makes about 256 chunks of 32 to 32768 rows each, or as many as fill a GPU.
Chunks chunks_of(const Caps& caps, uint64_t rows, uint64_t cols, uint32_t team) {
  const uint64_t usual = std::clamp<uint64_t>(divide_up(rows, 256), 32, 32768);
  const uint64_t across = divide_up(cols, REWIND_FLAT);
  const uint64_t size = team * column_run(caps, divide_up(rows, team), across * team, usual / team);
  const auto count = static_cast<uint32_t>(divide_up(rows, size));
  return {
      static_cast<uint32_t>(size), count, team, {static_cast<uint32_t>(across), count * team, 1}};
}

Chunks batch_norm_chunks(const Caps& caps, uint64_t rows, uint64_t channels) {
  return chunks_of(caps, rows, channels, caps.is_cpu ? 1 : BATCH_NORM_TEAM);
}

// Makes sums [2, cols] over the chunks, which `add(partial, its offset)` sums.
template <class Add>
void add_sums_of_chunks(Passes& passes, const Caps& caps, uint32_t count, uint32_t cols,
                        const Operand& sums, uint32_t offset, const Add& add) {
  if (count == 1) return add(written(sums), offset);
  const Operand partial = passes.scratch(uint64_t{count} * 2 * cols, DType::f32);
  add(written(partial), 0);
  add_sum(passes, caps, count, 2 * cols, partial, sums, offset);
}

}  // namespace

void add_reduce(Passes& passes, const Caps& caps, const KernelCall& call) {
  add_levels(passes, caps, call.constant(0), call.params_as<ReduceParams>(), operand(call, 0),
             operand(call, 1));
}

// A row, whose elements are neighbours, has a workgroup; elsewhere neighbours are of other results.
void add_argreduce(Passes& passes, const Caps& caps, const KernelCall& call) {
  const auto p = call.params_as<ReduceParams>();
  const uint32_t team = !caps.is_cpu && p.inner == 1 && p.count >= ARG_TEAM ? ARG_TEAM : 1;
  passes.add_whole("argreduce", call, uint64_t{p.outer} * p.inner * team, {call.constant(0), team});
}

void add_sum(Passes& passes, const Caps& caps, uint32_t count, uint32_t inner, const Operand& x,
             const Operand& y, uint32_t offset) {
  const ReduceParams p{.offset = {0, offset},
                       .outer = 1,
                       .count = count,
                       .inner = inner,
                       .chunk = count,
                       .scale = 1};
  add_levels(passes, caps, 0, p, x, y);
}

void add_batch_norm_stats(Passes& passes, const Caps& caps, const KernelCall& call) {
  const auto p = call.params_as<BatchNormParams>();
  const uint32_t c = p.channels;
  const Chunks chunks = batch_norm_chunks(caps, p.rows, c);
  Operand partial = passes.scratch(uint64_t{chunks.count} * 2 * c, DType::f32);
  const Operand first = passes.scratch(c, DType::f32);
  passes.add("batch_norm_chunks", {operand(call, 0), written(partial), written(first)},
             BatchNormParams{
                 .offset = {p.offset[0]}, .rows = p.rows, .channels = c, .chunk_rows = chunks.rows},
             chunks.threads, {loads_words(c, p.offset[0]), chunks.team});
  BatchNormCombineParams q{.rows = p.rows,
                           .channels = c,
                           .chunk_rows = chunks.rows,
                           .chunks = chunks.count,
                           .chunk_step = 2 * c,
                           .deviations_at = c};
  const auto combine = [&](const Operand& mean, const Operand& var, const Operand& both,
                           uint32_t runs) {
    q.run = static_cast<uint32_t>(divide_up(q.chunks, runs));
    passes.add("batch_norm_combine", {partial, first, written(mean), written(var), written(both)},
               q, {c, 32, runs});
  };
  while (q.chunks > BATCH_NORM_RUN) {  // a workgroup for each run, not for all chunks
    const auto runs = static_cast<uint32_t>(divide_up(q.chunks, BATCH_NORM_RUN));
    const Operand combined = passes.scratch(uint64_t{2} * runs * c, DType::f32);
    q.offset[3] = runs * c;
    combine(combined, combined, combined, runs);
    q.chunk_rows *= q.run;
    q.chunks = runs;
    q.chunk_step = c;
    q.deviations_at = runs * c;
    partial = combined;
  }
  q.offset[2] = p.offset[1];
  q.offset[3] = p.offset[2];
  q.offset[4] = p.offset[3];
  combine(operand(call, 1), operand(call, 2), operand(call, 3), 1);
}

void add_batch_norm_grad_stats(Passes& passes, const Caps& caps, const KernelCall& call) {
  auto p = call.params_as<BatchNormParams>();
  const Chunks chunks = batch_norm_chunks(caps, p.rows, p.channels);
  p.chunk_rows = chunks.rows;
  const bool is_whole = loads_words(p.channels, p.offset[0] | p.offset[1]);
  add_sums_of_chunks(passes, caps, chunks.count, p.channels, operand(call, 4), p.offset[4],
                     [&](const Operand& partial, uint32_t offset) {
                       p.offset[4] = offset;
                       passes.add("batch_norm_grad_chunks",
                                  {operand(call, 0), operand(call, 1), operand(call, 2),
                                   operand(call, 3), partial},
                                  p, chunks.threads, {is_whole, chunks.team});
                     });
}

void add_layer_norm_grad_stats(Passes& passes, const Caps& caps, const KernelCall& call) {
  auto p = call.params_as<LayerNormParams>();
  const Chunks chunks = chunks_of(caps, p.rows, p.cols, 1);
  p.chunk_rows = chunks.rows;
  const bool is_flat = loads_words(p.cols, p.offset[0] | p.offset[1]);
  add_sums_of_chunks(passes, caps, chunks.count, p.cols, operand(call, 3), p.offset[3],
                     [&](const Operand& partial, uint32_t offset) {
                       p.offset[3] = offset;
                       passes.add("layer_norm_grad_chunks",
                                  {operand(call, 0), operand(call, 1), operand(call, 2), partial},
                                  p, chunks.threads, {is_flat, call.constant(0)});
                     });
}

}  // namespace rw::vulkan
