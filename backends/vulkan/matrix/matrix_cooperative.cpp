// Tiles of cooperative matrices (shaders/matrix/tile_cooperative.glsl): the modules, and which of
// them a device may run.
#include "backends/vulkan/matrix/matrix_passes.h"

namespace rw::vulkan {

namespace {

constexpr uint32_t cooperative_step = 32;  // TILE_K

}  // namespace

bool fits_cooperative(const Caps& caps, DType t, uint32_t tile) {
  const bool brain = t == DType::bf16;
  const uint32_t needed = brain ? feature::cooperative_bf16 : feature::cooperative;
  if (!is_half(t) || !(caps.features & needed)) return false;
  const uint32_t shared =
      2 * 2 * tile * (cooperative_step + 8) * 2;  // bytes of two pairs of panels
  // Matrices of 8 x 8 have small tiles only: compilers take long for many of them in one tile.
  const MatrixShape& shape = caps.matrices.shape(brain);
  const bool may_be_large = shape[0] * shape[1] > 64 && !caps.few_registers;
  return (tile == 64 || may_be_large) && caps.shared_bytes >= shared;
}

TileFamily cooperative_family(DType t, uint32_t tile) {
  const char* factors = t == DType::bf16 ? "bf16" : "f16";
  return {fmt::format("cooperative.FACTORS{}.TILE{}", factors, tile),
          tile,
          tile,
          cooperative_step,
          0,
          true};
}

bool may_run_cooperative(std::string_view module, const Caps& caps) {
  const uint32_t tile = module.ends_with("TILE128") ? 128 : 64;  // attention's is smaller
  return fits_cooperative(caps, is_for_halves(module, true) ? DType::bf16 : DType::f16, tile);
}

bool is_for_halves(std::string_view module, bool brain) {
  return module.find("FACTORS") == module.npos ||
         (module.find("FACTORSbf16") != module.npos) == brain;
}

}  // namespace rw::vulkan
