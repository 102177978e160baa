// The tiles of GPUs (shaders/matrix/tile.glsl): their tile_sizes, the choice among them for a
// product, and its constants.
#include <algorithm>
#include <cmath>

#include "backends/vulkan/matrix/matrix_passes.h"
#include "core/base/error.h"

namespace rw::vulkan {

namespace {

// The sides of the tiles, and the FLOP/s of an average multiprocessor that is full of them.
struct Size {
  uint32_t tile;
  double rate;
  bool cooperative = false;  // of cooperative matrices
};
constexpr Size tile_sizes[] = {
    {32, 3e10}, {64, 6e10}, {128, 9e10}, {64, 4e11, true}, {128, 6e11, true}};
constexpr uint32_t tile_step = 16;  // TILE_K

// The workgroups that a multiprocessor runs at a time: limited by registers, and without matrices
// by 512 threads.
uint64_t groups_at_a_time(const Size& size) {
  return 256 / size.tile;
}

// How long a GPU takes for this many workgroups, where a busy multiprocessor takes 1 for each. The
// last wave leaves some of it idle: few workgroups keep little more than 0.6 of a multiprocessor
// busy, and as many as fit keep all of it.
double waves(const Caps& caps, const Size& size, uint64_t groups) {
  const uint64_t most = groups_at_a_time(size), wave = most * caps.multiprocessors;
  const auto last = static_cast<double>(divide_up(groups % wave, caps.multiprocessors));
  const double share = 0.6 + 0.4 * last / static_cast<double>(most);
  return static_cast<double>(groups / wave * most) + last / share;
}

uint32_t shared_bytes(uint32_t tile) {  // of the panels in tile_shared.glsl
  return 2 * tile_step * (tile + 4) * sizeof(float);
}

bool fits(const Caps& caps, DType t, const Size& size) {
  const uint32_t tile = size.tile;
  if (size.cooperative) return fits_cooperative(caps, t, tile);
  // CPU drivers have tiles of their own, and need these only if they lack the features of their
  // own. A thread has 64 sums of the largest.
  return (!caps.is_cpu || tile == 64) && (!caps.few_registers || tile < 128) &&
         caps.max_threads >= 2 * tile && caps.shared_bytes >= shared_bytes(tile);
}

TileFamily family_of(DType t, const Size& size) {
  if (size.cooperative) return cooperative_family(t, size.tile);
  return {fmt::format("tiled.TILE{}", size.tile), size.tile, size.tile, tile_step};
}

// The seconds that sums over k take in this many parts, with edges computed in full. The parts are
// added up.
double cost(const Caps& caps, const TileProblem& q, const Size& size, uint64_t tiles,
            uint64_t parts) {
  const double group = 2.0 * size.tile * size.tile * static_cast<double>(divide_up(q.k, parts));
  const double results = 1.0 * static_cast<double>(q.rows) * q.cols * q.products;
  const double sum = 1e-5 + results * static_cast<double>(parts) / (8e8 * caps.multiprocessors);
  return waves(caps, size, tiles * parts) * group / size.rate + (parts > 1 ? sum : 0);
}

// The cheapest number of parts: one, or as many as give each multiprocessor a full load of
// workgroups.
uint64_t best_parts(const Caps& caps, const TileProblem& q, const Size& size, uint64_t tiles) {
  const uint64_t most = q.k / 256;  // a part is worth its reduction
  uint64_t best = 1;
  double least = cost(caps, q, size, tiles, 1);
  for (uint64_t each = 1; each <= 2 * groups_at_a_time(size); ++each) {
    const uint64_t parts = std::min(each * caps.multiprocessors / tiles, most);
    if (parts > best) {
      const double seconds = cost(caps, q, size, tiles, parts);
      if (seconds < least) best = parts, least = seconds;
    }
    if (parts == most) break;  // and so are those of more
  }
  return best;
}

double cost(const Caps& caps, const TileProblem& q, const Size& size) {
  const TileFamily f = family_of(q.dtype, size);
  const uint64_t tiles = std::max<uint64_t>(1, q.tiles(f));
  // On CPUs such tiles are slower than products element by element.
  if (caps.is_cpu) return 2.0 * static_cast<double>(tiles) * size.tile * size.tile * q.k / 1e9;
  return cost(caps, q, size, tiles, split_k(caps, q, f).parts);
}

const Size& tile_size(const TileFamily& family) {
  return *std::find_if(std::begin(tile_sizes), std::end(tile_sizes), [&](const Size& s) {
    return s.tile == family.tile_rows && s.cooperative == family.cooperative;
  });
}

const Size* best(const Caps& caps, const TileProblem& q) {
  const Size* found = nullptr;
  std::pair<bool, double> least;
  for (const Size& s : tile_sizes) {
    if (!fits(caps, q.dtype, s) || s.tile > q.most_tile) continue;
    const bool is_chosen =
        q.choice.family == (s.cooperative ? Choice::Family::cooperative : Choice::Family::tiled);
    if (is_chosen && q.choice.size == s.tile) return &s;
    const std::pair this_one(!is_chosen, cost(caps, q, s));
    if (!found || this_one < least) found = &s, least = this_one;
  }
  return found;
}

// Whether `lines` x `k` elements come in words of 16 bytes, none of which is partly outside: words
// of neighbours in k with `along_k`, otherwise in a line.
bool in_whole_words(DType t, bool along_k, uint32_t k, uint32_t offset, uint32_t line_step,
                    uint32_t lines, uint32_t k_step, const uint32_t batch[2]) {
  const uint32_t word = word_of(t);
  return along_k ? k % word == 0 && in_words(word, offset, line_step, lines, batch)
                 : lines % word == 0 && in_words(word, offset, k_step, k, batch);
}

}  // namespace

bool fits_tiled(const Caps& caps) {
  return std::any_of(std::begin(tile_sizes), std::end(tile_sizes),
                     [&](const Size& s) { return fits(caps, DType::f32, s); });
}

TileFamily tiled_family(const Caps& caps, const TileProblem& problem) {
  const Size* size = best(caps, problem);
  check<DeviceError>(size != nullptr, "matmul", "tiles need workgroups of 64 threads, got {}",
                     caps.max_threads);
  return family_of(problem.dtype, *size);
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
  return std::any_of(std::begin(tile_sizes), std::end(tile_sizes), [&](const Size& s) {
    return module.ends_with(fmt::format("_tiled.TILE{}", s.tile)) && fits(caps, DType::f32, s);
  });
}

Split split_k(const Caps& caps, const TileProblem& problem, const TileFamily& family) {
  if (!problem.may_split) return {1, static_cast<uint32_t>(multiple_of(family.step, problem.k))};
  const uint64_t k = problem.k, tiles = std::max<uint64_t>(1, problem.tiles(family));
  uint64_t wanted = 0;
  if (problem.choice.parts) {
    constexpr uint64_t most_sums = uint64_t{1} << 26;
    const uint64_t results = problem.rows * problem.cols * problem.products;
    wanted = std::min(
        {uint64_t{problem.choice.parts}, k / 64, most_sums / std::max<uint64_t>(1, results)});
  } else if (caps.is_cpu) {
    wanted = std::min(divide_up(16, tiles), k / 512);
  } else {
    wanted = best_parts(caps, problem, tile_size(family), tiles);
  }
  const uint64_t parts = std::max({uint64_t{1}, wanted, divide_up(k, kMaxLoop)});
  const uint64_t chunk =
      std::max<uint64_t>(family.step, multiple_of(family.step, divide_up(k, parts)));
  return {static_cast<uint32_t>(std::max<uint64_t>(1, divide_up(k, chunk))),
          static_cast<uint32_t>(chunk)};
}

}  // namespace rw::vulkan
