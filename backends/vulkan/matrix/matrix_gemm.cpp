// The variants of matmul and the choice among them.
#include <algorithm>
#include <bit>

#include "backends/vulkan/matrix/matrix_passes.h"
#include "core/backend/unsupported.h"
#include "core/base/error.h"

namespace rw::vulkan {

using kernels::GemmParams;
using kernels::MatmulParams;
using kernels::MatrixPackParams;
using kernels::MatrixReduceParams;

namespace {

bool has_subgroup_family(const Caps& caps) {
  constexpr uint32_t needed = feature::shuffle | feature::texels;
  return (caps.features & needed) == needed && caps.subgroup_size >= 2 && caps.is_cpu;
}

struct Problem {
  MatmulParams p;
  DType t, u;  // of a and b, of c
  Choice choice = {};

  uint32_t batches() const { return p.batch[0] * p.batch[1]; }
  double volume() const { return 2.0 * p.m * p.n * p.k * batches(); }
  TileProblem tiles() const { return {t, p.m, p.n, p.k, batches(), 128, choice}; }
};

bool fits_words(const GemmParams& g, uint32_t word, bool left, bool transposed) {
  if (left)
    return transposed ? in_words(word, g.offset[0], g.a_col, g.k, g.a_batch)
                      : in_words(word, g.offset[0], g.a_row, g.m, g.a_batch);
  return transposed ? in_words(word, g.offset[1], g.b_col, g.n, g.b_batch)
                    : in_words(word, g.offset[1], g.b_row, g.k, g.b_batch);
}

// How many elements of c can be stored at a time: 4, in 16 bits 8 or 2, or 1.
uint32_t stores_at_once(const Problem& q) {
  const MatmulParams& p = q.p;
  for (const uint32_t word : {8u, 4u, 2u})
    if (word <= most_stores(q.t, q.u) && p.n % word == 0 &&
        in_words(word, p.offset[2], p.c_row, p.m, p.c_batch))
      return word;
  return 1;
}

// Packs a [rows, cols] operand of g into panels and points its strides at the copy.
Operand pack_operand(Passes& passes, const Problem& q, Operand x, uint32_t rows, uint32_t cols,
                     uint32_t panel, uint32_t& offset, uint32_t& row, uint32_t& col,
                     uint32_t batch[2]) {
  const bool shared = batch[0] == 0 && batch[1] == 0;
  const MatrixPackParams p{.offset = {offset, 0},
                           .n = 0,
                           .rows = rows,
                           .cols = cols,
                           .panel = panel,
                           .batch_inner = shared ? 1 : q.p.batch[1],
                           .x_batch = {batch[0], batch[1]},
                           .x_row = row,
                           .x_col = col};
  const Operand y = add_pack(passes, p, shared ? 1 : q.batches(), x);
  offset = 0;
  row = panel;
  col = 1;
  batch[1] = shared ? 0 : static_cast<uint32_t>(multiple_of(panel, cols)) * rows;
  batch[0] = batch[1] * q.p.batch[1];
  return y;
}

// Whether it pays to pack a factor into panels: enough tiles along the other side, of size
// `readers`, read them, and without panels the lines of a tile are far apart or collide in the
// cache. `side` is an explicit choice for the left or the right factor.
bool wants_panels(const Problem& q, Choice::Panels side, uint32_t size, uint32_t panel,
                  uint32_t readers) {
  constexpr uint32_t least_readers = 256, least_bytes = 140 << 10;
  if (const Choice::Panels chosen = q.choice.panels; chosen != Choice::Panels::any)
    return size > panel && (chosen == side || chosen == Choice::Panels::both);
  return readers >= least_readers && size > panel &&
         uint64_t{size} * q.p.k * size_of(q.t) >= least_bytes;
}

// Runs g, into c itself or, if it is split, by way of f32 parts. `variant` holds all but the last
// of gemm_subgroup's constants.
void add_tiles(Passes& passes, const Caps& caps, const Problem& q, const TileFamily& family,
               GemmParams g, std::vector<uint32_t> variant, Operand a, Operand b, Operand c) {
  const uint64_t tiles = q.tiles().tiles(family);
  const Split split = split_k(caps, q.tiles(), family);
  g.splits = split.parts;
  g.k_chunk = split.chunk;
  const std::string kernel = family.kernel("gemm");
  if (family.lanes)
    variant.push_back(split.parts == 1 && q.p.beta != 0);  // ADDS
  else
    variant = tiled_variant(q.p, q.t, split.parts > 1);
  if (split.parts == 1) {
    passes.add(kernel, {a, b, c.as(Access::read_write)}, g, tiles, std::move(variant), q.volume());
    return;
  }
  const uint32_t matrix = g.m * g.n;
  const Operand parts = passes.scratch(uint64_t{split.parts} * q.batches() * matrix, DType::f32);
  const MatrixReduceParams r{.offset = {0, g.offset[2]},
                             .n = q.batches() * matrix,
                             .rows = g.m,
                             .cols = g.n,
                             .parts = split.parts,
                             .x_split = q.batches() * matrix,
                             .x_batch = matrix,
                             .x_i = g.n,
                             .inner = g.n,
                             .x_outer = 0,
                             .x_inner = 1,
                             .batch_inner = q.p.batch[1],
                             .y_batch = {g.c_batch[0], g.c_batch[1]},
                             .y_row = g.c_row,
                             .alpha = q.p.alpha,
                             .beta = q.p.beta};
  g.offset[2] = 0;
  g.c_row = g.n;
  g.c_batch[1] = matrix;
  g.c_batch[0] = matrix * q.p.batch[1];
  g.c_split = q.batches() * matrix;
  g.alpha = 1;
  g.beta = 0;
  passes.add(kernel, {a, b, parts.as(Access::read_write)}, g, tiles * split.parts,
             std::move(variant), q.volume());
  add_reduce(passes, r, parts, c);
}

GemmParams gemm_params(const Problem& q) {
  const MatmulParams& p = q.p;
  return {.offset = {p.offset[0], p.offset[1], p.offset[2]},
          .m = p.m,
          .n = p.n,
          .k = p.k,
          .k_chunk = p.k,
          .splits = 1,
          .batches = q.batches(),
          .batch_inner = p.batch[1],
          .a_row = p.a_row,
          .a_col = p.a_col,
          .b_row = p.b_row,
          .b_col = p.b_col,
          .c_row = p.c_row,
          .a_batch = {p.a_batch[0], p.a_batch[1]},
          .b_batch = {p.b_batch[0], p.b_batch[1]},
          .c_batch = {p.c_batch[0], p.c_batch[1]},
          .a_panel = 0,
          .b_panel = 0,
          .c_split = 0,
          .alpha = p.alpha,
          .beta = p.beta};
}

// ---- variants ------------------------------------------------------------------------------
TileFamily subgroup_family(const Caps& caps, DType t, uint32_t n, const Choice& choice) {
  constexpr uint32_t rows = 16;                       // ROWS of gemm_tile.glsl
  const uint32_t width = word_of(t);                  // WIDTH and DEPTH
  uint32_t lanes = std::min(caps.subgroup_size, 8u);  // divides ROWS
  if (choice.family == Choice::Family::subgroup && choice.size)
    lanes = std::min(lanes, choice.size);
  else
    while (lanes > 2 && n <= lanes / 2 * width) lanes /= 2;
  return {"subgroup", caps.subgroup_size / lanes * rows, lanes * width, lanes * width, lanes};
}

// The seconds that tiles take on a device of `rate` FLOP/s, with edges computed in full.
double tile_cost(const Problem& q, const TileFamily& f, double rate) {
  return 2.0 * multiple_of(f.tile_rows, q.p.m) * multiple_of(f.tile_cols, q.p.n) * q.p.k *
         q.batches() / rate;
}

// The same on CPU drivers, whose tiles write element by element.
double store_cost(const Problem& q, const Caps& caps) {
  return caps.is_cpu ? 1.0 * q.p.m * q.p.n * q.batches() / 3e8 : 0;
}

void add_naive(Passes& passes, const Caps&, const Problem& q, Operand a, Operand b, Operand c) {
  passes.add("gemm_naive", {a, b, c.as(Access::read_write)}, q.p,
             uint64_t{q.p.m} * q.p.n * q.batches(), {}, q.volume());
}

void add_subgroup(Passes& passes, const Caps& caps, const Problem& q, Operand a, Operand b,
                  Operand c) {
  const TileFamily family = subgroup_family(caps, q.t, q.p.n, q.choice);
  const uint32_t word = word_of(q.t);
  GemmParams g = gemm_params(q);
  bool a_transposed = g.a_col != 1, b_transposed = g.b_col != 1;
  g.a_panel = family.tile_rows;
  if (!a_transposed && wants_panels(q, Choice::Panels::left, g.m, family.tile_rows, g.n)) {
    a = pack_operand(passes, q, a, g.k, g.m, family.tile_rows, g.offset[0], g.a_col, g.a_row,
                     g.a_batch);
    a_transposed = true;
    g.a_panel = g.k * family.tile_rows;
  } else if (!fits_words(g, word, true, a_transposed)) {
    const auto panel = static_cast<uint32_t>(multiple_of(word, g.k));
    a = pack_operand(passes, q, a, g.m, g.k, panel, g.offset[0], g.a_row, g.a_col, g.a_batch);
    a_transposed = false;
  }
  g.b_panel = family.tile_cols;
  if (!fits_words(g, word, false, b_transposed) ||
      wants_panels(q, Choice::Panels::right, g.n, family.tile_cols, g.m)) {
    b = pack_operand(passes, q, b, g.k, g.n, family.tile_cols, g.offset[1], g.b_row, g.b_col,
                     g.b_batch);
    b_transposed = false;
    g.b_panel = g.k * family.tile_cols;
  }
  add_tiles(passes, caps, q, family, g,
            {family.lanes, stores_at_once(q), a_transposed, b_transposed}, a, b, c);
}

void add_tiled(Passes& passes, const Caps& caps, const Problem& q, Operand a, Operand b,
               Operand c) {
  add_tiles(passes, caps, q, tiled_family(caps, q.tiles()), gemm_params(q), {}, a, b, c);
}

struct Variant {
  Choice::Family family;
  bool (*admits)(const Problem&, const Caps&);
  double (*cost)(const Problem&, const Caps&);  // seconds, roughly
  void (*add)(Passes&, const Caps&, const Problem&, Operand a, Operand b, Operand c);
};

// The rates are measured on two cores of a CPU driver, and typical of an average GPU.
constexpr Variant variants[] = {
    {Choice::Family::naive, [](const Problem& q, const Caps&) { return q.p.k <= kMaxLoop; },
     [](const Problem& q, const Caps& caps) {
       // On a GPU each thread waits for its loads, one value of k after the other.
       const double rate = caps.is_cpu ? 2e9 : 5e9 * caps.multiprocessors;
       return q.volume() / rate + (caps.is_cpu ? 0 : q.p.k * 6e-8) + store_cost(q, caps);
     },
     add_naive},
    {Choice::Family::subgroup,
     [](const Problem&, const Caps& caps) { return has_subgroup_family(caps); },
     [](const Problem& q, const Caps& caps) {
       return tile_cost(q, subgroup_family(caps, q.t, q.p.n, q.choice), 25e9) + store_cost(q, caps);
     },
     add_subgroup},
    {Choice::Family::tiled, [](const Problem&, const Caps& caps) { return fits_tiled(caps); },
     [](const Problem& q, const Caps& caps) {
       return tiled_cost(caps, q.tiles()) + store_cost(q, caps);
     },
     add_tiled},
};

const Variant& choose(const Problem& q, const Caps& caps) {
  const Variant* best = nullptr;
  const Choice::Family family =
      q.choice.family == Choice::Family::cooperative ? Choice::Family::tiled : q.choice.family;
  for (const Variant& v : variants) {
    if (!v.admits(q, caps)) continue;
    if (v.family == family) return v;
    if (!best || v.cost(q, caps) < best->cost(q, caps)) best = &v;
  }
  check<Unsupported>(
      best != nullptr, "matmul",
      "sums of {} values need tiles, of workgroups that share memory or of subgroups "
      "with shuffles and texels; the device has workgroups of {} threads that share "
      "{} bytes",
      q.p.k, caps.max_threads, caps.shared_bytes);
  return *best;
}

}  // namespace

bool in_words(uint32_t word, uint32_t offset, uint32_t step, uint32_t lines,
              const uint32_t batch[2]) {
  return offset % word == 0 && (step % word == 0 || lines == 1) && batch[0] % word == 0 &&
         batch[1] % word == 0;
}

bool takes_subgroup_tiles(const Caps& caps, const Choice& choice) {
  return has_subgroup_family(caps) && choice.family != Choice::Family::tiled;
}

TileFamily tile_family(const Caps& caps, const TileProblem& problem) {
  return takes_subgroup_tiles(caps, problem.choice)
             ? subgroup_family(caps, problem.dtype, problem.cols, problem.choice)
             : tiled_family(caps, problem);
}

bool may_run(std::string_view module, const Caps& caps) {
  const bool of_cpu_drivers = module.ends_with("_subgroup") || module == "matrix_pack";
  if (module.find("_cooperative.") != module.npos) return may_run_cooperative(module, caps);
  const bool attends = module.starts_with("attention");  // by tiles of its own
  if (!attends && module.find("_tiled.") != module.npos) return may_run_tiled(module, caps);
  const auto family = of_cpu_drivers ? Choice::Family::subgroup : Choice::Family::naive;
  return std::any_of(std::begin(variants), std::end(variants), [&](const Variant& v) {
    return v.family == family && v.admits({.p = {}, .t = DType::f32, .u = DType::f32}, caps);
  });
}

void add_matmul(Passes& passes, const Caps& caps, const Choice& choice, const MatmulParams& p,
                Operand a, Operand b, Operand c) {
  const Problem q{p, a.dtype, c.dtype, choice};
  if (p.m == 0 || p.n == 0 || q.batches() == 0) return;
  choose(q, caps).add(passes, caps, q, a, b, c);
}

void add_reduce(Passes& passes, MatrixReduceParams p, Operand x, Operand y) {
  const auto are_words = [](std::initializer_list<uint32_t> steps) {
    return std::all_of(steps.begin(), steps.end(), [](uint32_t step) { return step % 4 == 0; });
  };
  const bool along_rows = p.x_i == 1 && p.rows > 1, is_dense = p.x_inner == 1 && p.inner == p.cols;
  const bool words = are_words({p.offset[0], p.x_split, p.x_batch}) &&
                     (along_rows ? are_words({p.rows, p.x_outer, p.x_inner})
                                 : is_dense && are_words({p.cols, p.x_i}));
  const bool words_out =
      words && !along_rows && are_words({p.offset[1], p.y_batch[0], p.y_batch[1], p.y_row});
  const uint32_t team = p.parts < 16 ? 1 : 8;
  passes.add("matrix_reduce", {x, y.as(Access::read_write)}, p,
             uint64_t{words ? p.n / 4 : p.n} * team, {along_rows, words, words_out, team});
}

Operand add_pack(Passes& passes, MatrixPackParams p, uint32_t batches, Operand x) {
  const uint64_t count = uint64_t{batches} * p.rows * multiple_of(p.panel, p.cols);
  const Operand y = passes.scratch(count, x.dtype);
  p.n = static_cast<uint32_t>(count / 4);
  passes.add("matrix_pack", {x, y.as(Access::write)}, p, p.n);
  return y;
}

}  // namespace rw::vulkan
