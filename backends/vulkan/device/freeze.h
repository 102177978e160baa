// Fixes the specialization constants of SPIR-V modules.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rw::vulkan {

// A property of floats of one width that a device keeps (DenormPreserve, RoundingModeRTE, ...), as
// a capability and an execution mode with their numbers in the specification. Without it, the
// device may treat them in any way.
struct FloatMode {
  uint32_t capability, mode, width;
  bool operator==(const FloatMode&) const = default;
};

// Returns the module with the values as constants instead of specialization constants (others have
// their defaults), and without the blocks that no branch then reaches. Drivers could do it, but
// some first compile everything that the constants rule out: SwiftShader took 1.2 s for a pipeline
// of `unary`, of whose 39 functions it needs one; lavapipe 45 ms.
//
// `values` has pairs (SpecId, bits). Blocks stay where removing some needs more changes, as in a
// loop whose continue target is no longer reached. With `unrolls`, loops keep their hints to
// unroll. Source of the rules for merge blocks and phis: SPIR-V specification, 2.11 Structured
// Control Flow. The module declares `modes` besides its own.
std::vector<uint32_t> freeze(std::span<const uint32_t> words,
                             std::span<const std::pair<uint32_t, uint32_t>> values,
                             bool unrolls = true, std::span<const FloatMode> modes = {});

}  // namespace rw::vulkan
