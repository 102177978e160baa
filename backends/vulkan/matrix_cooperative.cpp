// Tiles of cooperative matrices (shaders/tile_cooperative.glsl): which modules there are, and which
// of them a device may run.
#include "rewind/backends/vulkan/matrix_passes.h"

namespace rw::vulkan {

namespace {

constexpr uint32_t step = 32;  // TILE_K

// FRAGMENT of the modules for such factors; 0: none.
uint32_t fragment_of(const Caps& caps, bool brain) {
  const uint32_t needed = brain ? feature::cooperative_bf16 : feature::cooperative;
  if (!(caps.features & needed)) return 0;
  return brain ? caps.matrices.fragment_bf16 : caps.matrices.fragment;
}

// Of a module's name: the factors and the shape that it is made for.
std::string form(bool brain, uint32_t fragment) {
  return fmt::format("cooperative.FACTORS{}.FRAGMENT{}", brain ? "bf16" : "f16", fragment);
}

}  // namespace

bool fits_cooperative(const Caps& caps, DType t, uint32_t tile) {
  const uint32_t fragment = is_half(t) ? fragment_of(caps, t == DType::bf16) : 0;
  const uint32_t shared = 2 * tile * (step + 8) * 2;  // bytes of both panels
  // Matrices of 8 x 8 have small tiles only: many of them in one take compilers long.
  return (fragment == 16 || (fragment == 8 && tile == 64)) && caps.shared_bytes >= shared;
}

TileFamily cooperative_family(const Caps& caps, DType t, uint32_t tile) {
  const bool brain = t == DType::bf16;
  const std::string suffix = fmt::format("{}.TILE{}", form(brain, fragment_of(caps, brain)), tile);
  return {suffix, tile, tile, step, 0, true};
}

std::string cooperative_module(const Caps& caps, std::string_view kernel, DType t) {
  const bool brain = t == DType::bf16;
  const std::string_view name = kernel.substr(0, kernel.rfind('_'));
  return fmt::format("{}_{}", name, form(brain, fragment_of(caps, brain)));
}

bool may_run_cooperative(std::string_view module, const Caps& caps) {
  for (const bool brain : {false, true}) {
    const uint32_t fragment = fragment_of(caps, brain);
    if (fragment && module.find(form(brain, fragment)) != module.npos) return true;
  }
  return false;
}

bool is_for_halves(std::string_view module, bool brain) {
  return module.find("FACTORS") == module.npos ||
         (module.find("FACTORSbf16") != module.npos) == brain;
}

}  // namespace rw::vulkan
