// The table that shaders/compiler/compile.py generates: every variant of every kernel, with its
// SPIR-V.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

// Device features that a module needs, besides what the backend always requires.
namespace feature {
inline constexpr uint32_t subgroup = 1, vote = 2, arithmetic = 4, ballot = 8, shuffle = 16;
inline constexpr uint32_t float16 = 64, storage16 = 128, address = 256;  // 32 is no longer used
inline constexpr uint32_t cooperative = 512, cooperative_bf16 = 1024;
// Bindings that are read are bound as texel buffers, too: CPU drivers gather those, but load others
// lane by lane.
inline constexpr uint32_t texels = 2048;
// 16-bit values at all: refused on a device that converts them wrongly.
inline constexpr uint32_t halves = 4096;
}  // namespace feature

struct ShaderBinding {
  DType dtype;
  Access access;
};

// Specialization constant 0, 1, ... of a module: its possible values, and its default.
struct ShaderConstant {
  const char* name;
  uint32_t otherwise;
  std::span<const uint32_t> values;
  bool is_open;  // the values are examples: a call may give it others
};

// The meaning of threads.x. `threads` and `groups` are 1-D and may be folded into two dimensions.
// `words`: the call does not count them; there is one thread per four elements of the first output.
enum class Grid : uint8_t { threads, groups, cube, words };

struct Shader {
  const char* kernel;  // NAME, or NAME.A1.B3 for a combination of the manifest's defines
  std::span<const ShaderBinding> bindings;
  bool packed;   // f16 elements in uint words instead of 16-bit storage
  bool address;  // bindings by buffer address instead of descriptors
  // Takes the place of another module of the kernel where the device lacks what that one needs.
  bool stands_in;
  Grid grid;
  uint32_t features;    // feature:: bits
  uint32_t push_bytes;  // of the params struct, and of the first group
  // Workgroup size; local[0] == 0: specialization constant 100, which is local[1] subgroups where
  // that is not 1; 0: as many as make a tile of a product.
  std::array<uint32_t, 3> local;
  std::span<const ShaderConstant> constants;
  std::span<const uint32_t> words;
};

// Returns all modules; those of a .comp file lie side by side.
std::span<const Shader> all_shaders();

}  // namespace rw::vulkan
