// The tiles of GPUs (shaders/tile.glsl): their sizes, which of them a product takes, and its
// constants.
#include <algorithm>
#include <cmath>

#include "backends/vulkan/matrix/matrix_passes.h"
#include "core/base/error.h"

namespace rw::vulkan {

namespace {

// Sides of the tiles, and FLOP/s of a middling GPU that is full of them.
struct Size {
  uint32_t tile;
  double rate;
  bool cooperative = false;  // of cooperative matrices
};
constexpr Size sizes[] = {{32, 2e12}, {64, 4e12}, {128, 6e12}, {64, 2e13, true}, {128, 4e13, true}};
constexpr uint32_t step = 16;  // TILE_K

// Workgroups that fill a GPU, 512 threads on each multiprocessor: of 2 * tile threads, or of 256.
uint64_t enough_groups(const Caps& caps, const TileFamily& family) {
  return caps.multiprocessors * (family.cooperative ? 2 : 256 / family.tile_rows);
}

// The share of a GPU that so many workgroups keep busy: the last wave leaves some of it idle.
double busy_share(const Caps& caps, const TileFamily& family, uint64_t groups) {
  const auto count = static_cast<double>(groups);
  const double waves = std::ceil(count / caps.multiprocessors);
  return std::min(1.0, count / static_cast<double>(enough_groups(caps, family))) * count /
         (waves * caps.multiprocessors);
}

uint32_t shared_bytes(uint32_t tile) {  // of the panels in tile_shared.glsl
  return 2 * step * (tile + 4) * sizeof(float);
}

bool fits(const Caps& caps, DType t, const Size& size) {
  const uint32_t tile = size.tile;
  if (size.cooperative) return fits_cooperative(caps, t, tile);
  // CPU drivers have tiles of their own, and need these only where they lack what those stand on.
  return (!caps.is_cpu || tile == 64) && caps.max_threads >= 2 * tile &&
         caps.shared_bytes >= shared_bytes(tile);
}

TileFamily family_of(const Caps& caps, DType t, const Size& size) {
  if (size.cooperative) return cooperative_family(t, size.tile);
  return {fmt::format("tiled.TILE{}", size.tile), size.tile, size.tile, step};
}

// Seconds, with edges computed in full; too few workgroups leave a GPU idle, and parts are added
// up.
double cost(const Caps& caps, const TileProblem& q, const Size& size) {
  const TileFamily f = family_of(caps, q.dtype, size);
  const uint64_t tiles = q.tiles(f);
  const uint32_t parts = split_k(caps, q, f).parts;
  const double flops = 2.0 * static_cast<double>(tiles) * size.tile * size.tile * q.k;
  if (caps.is_cpu) return flops / 1e9;  // slower than element by element
  const double busy = busy_share(caps, f, std::max<uint64_t>(1, tiles * parts));
  const double results = 1.0 * static_cast<double>(q.rows) * q.cols * q.products;
  return flops / (size.rate * busy) + (parts > 1 ? results * parts / 5e10 : 0);
}

const Size* best(const Caps& caps, const TileProblem& q) {
  const Size* found = nullptr;
  std::pair<bool, double> least;
  for (const Size& s : sizes) {
    if (!fits(caps, q.dtype, s) || s.tile > q.most_tile) continue;
    const bool is_chosen =
        q.choice.family == (s.cooperative ? Choice::Family::cooperative : Choice::Family::tiled);
    if (is_chosen && q.choice.size == s.tile) return &s;
    const std::pair this_one(!is_chosen, cost(caps, q, s));
    if (!found || this_one < least) found = &s, least = this_one;
  }
  return found;
}

// Whether `lines` x `k` elements come in words of 16 bytes, of which none is partly outside: of
// neighbours in k where `along_k`, else in a line.
bool in_whole_words(DType t, bool along_k, uint32_t k, uint32_t offset, uint32_t line_step,
                    uint32_t lines, uint32_t k_step, const uint32_t batch[2]) {
  const uint32_t word = word_of(t);
  return along_k ? k % word == 0 && in_words(word, offset, line_step, lines, batch)
                 : lines % word == 0 && in_words(word, offset, k_step, k, batch);
}

}  // namespace

bool fits_tiled(const Caps& caps) {
  return std::any_of(std::begin(sizes), std::end(sizes),
                     [&](const Size& s) { return fits(caps, DType::f32, s); });
}

TileFamily tiled_family(const Caps& caps, const TileProblem& problem) {
  const Size* size = best(caps, problem);
  check<DeviceError>(size != nullptr, "matmul", "tiles need workgroups of 64 threads, got {}",
                     caps.max_threads);
  return family_of(caps, problem.dtype, *size);
}

double tiled_cost(const Caps& caps, const TileProblem& problem) {
  return cost(caps, problem, *best(caps, problem));
}

std::vector<uint32_t> tiled_variant(const kernels::MatmulParams& p, DType t, bool is_split) {
  const bool a_along_k = p.a_col == 1, b_along_k = p.b_row == 1;
  const bool words_in =
      in_whole_words(t, a_along_k, p.k, p.offset[0], p.a_row, p.m, p.a_col, p.a_batch) &&
      in_whole_words(t, b_along_k, p.k, p.offset[1], p.b_col, p.n, p.b_row, p.b_batch);
  const bool words_out =
      p.n % 4 == 0 && (is_split || in_words(4, p.offset[2], p.c_row, p.m, p.c_batch));
  return {a_along_k, b_along_k, words_in, words_out};
}

bool may_run_tiled(std::string_view module, const Caps& caps) {
  return std::any_of(std::begin(sizes), std::end(sizes), [&](const Size& s) {
    return module.ends_with(fmt::format("_tiled.TILE{}", s.tile)) && fits(caps, DType::f32, s);
  });
}

Split split_k(const Caps& caps, const TileProblem& problem, const TileFamily& family) {
  if (!problem.may_split) return {1, static_cast<uint32_t>(multiple_of(family.step, problem.k))};
  const uint64_t enough = caps.is_cpu ? 16 : 2 * enough_groups(caps, family), k = problem.k;
  const uint64_t open = divide_up(enough, std::max<uint64_t>(1, problem.tiles(family)));
  uint64_t wanted = std::min(open, k / (caps.is_cpu ? 512 : 256));  // a part is worth its reduction
  if (problem.choice.parts) {
    constexpr uint64_t most_sums = uint64_t{1} << 26;
    const uint64_t results = problem.rows * problem.cols * problem.products;
    wanted = std::min(
        {uint64_t{problem.choice.parts}, k / 64, most_sums / std::max<uint64_t>(1, results)});
  }
  const uint64_t parts = std::max({uint64_t{1}, wanted, divide_up(k, kMaxLoop)});
  const uint64_t chunk =
      std::max<uint64_t>(family.step, multiple_of(family.step, divide_up(k, parts)));
  return {static_cast<uint32_t>(std::max<uint64_t>(1, divide_up(k, chunk))),
          static_cast<uint32_t>(chunk)};
}

}  // namespace rw::vulkan
