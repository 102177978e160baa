#include "backends/vulkan/passes/copy.h"

#include <utility>

namespace rw::vulkan {

namespace {

using kernels::CopyParams;

enum Way : uint32_t { by_elements, flat, by_words };  // constant FLAT

constexpr uint32_t word = REWIND_FLAT;

bool is_dense(const CopyParams& p) {
  return p.rank == 0 || (p.rank == 1 && p.x_stride[0] == 1 && p.y_stride[0] == 1);
}

// Whether the last dimension is dense in both tensors and everything moves in words.
bool moves_in_words(const CopyParams& p) {
  const uint32_t last = p.rank - 1;
  bool words = p.shape[last] % word == 0 && p.offset[0] % word == 0 && p.offset[1] % word == 0 &&
               p.x_stride[last] == 1 && p.y_stride[last] == 1;
  for (uint32_t axis = 0; axis < last; ++axis)
    words = words && p.x_stride[axis] % word == 0 && p.y_stride[axis] % word == 0;
  return words;
}

// Tiles of the copy's last two dimensions, if it transposes a matrix on a GPU: the source is dense
// along the dimension before the last one, and the target along the last one. 0 otherwise.
uint64_t turn(CopyParams& p, const Caps& caps) {
  constexpr uint32_t side = 32, least = 8;
  const uint32_t last = p.rank - 1;
  if (caps.is_cpu || last < 1 || p.y_stride[last] != 1 || p.shape[last] < least) return 0;
  for (uint32_t axis = 0; axis < last; ++axis) {
    if (p.x_stride[axis] != 1 || p.shape[axis] < least) continue;
    for (uint32_t a = axis; a + 1 < last; ++a) {
      std::swap(p.shape[a], p.shape[a + 1]);
      std::swap(p.x_stride[a], p.x_stride[a + 1]);
      std::swap(p.y_stride[a], p.y_stride[a + 1]);
    }
    uint64_t tiles = 1;
    for (uint32_t a = 0; a <= last; ++a)
      tiles *= a + 1 < last ? p.shape[a] : divide_up(p.shape[a], side);
    return tiles;
  }
  return 0;
}

}  // namespace

void add_copy(Passes& passes, const Caps& caps, CopyParams p, const Operand& x, const Operand& y) {
  const auto add = [&](const char* module, uint64_t threads, Way way) {
    passes.add(module, {x, written(y)}, p, threads, {way});
  };
  if (is_dense(p)) return add("copy", divide_up(p.n, word), flat);
  if (moves_in_words(p)) {
    const uint32_t last = p.rank - 1;
    p.shape[last] /= word;
    p.x_stride[last] = p.y_stride[last] = word;
    return add("copy", p.n / word, by_words);
  }
  if (const uint64_t tiles = turn(p, caps)) return add("copy_tiled", tiles, by_elements);
  add("copy", p.n, by_elements);
}

}  // namespace rw::vulkan
