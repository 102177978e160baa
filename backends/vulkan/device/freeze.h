// Fixes the specialization constants of SPIR-V modules.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rw::vulkan {

// A property of floats of one width that a device keeps (DenormPreserve, RoundingModeRTE, ...):
// capability and execution mode, by their numbers in the specification. Without it, the device may
// do as it likes.
struct FloatMode {
  uint32_t capability, mode, width;
  bool operator==(const FloatMode&) const = default;
};

// The module with the values as constants instead of specialization constants (others have their
// defaults), and without the blocks that no branch reaches then. Drivers could do it, and some
// compile all that the constants rule out first: SwiftShader took 1.2 s for a pipeline of `unary`,
// of whose 39 functions it needs one; lavapipe 45 ms.
//
// `values`: (SpecId, bits). Blocks stay where taking some out needs more than that: where the
// continue target of a loop is not reached any longer. `unrolls`: loops keep what asks for their
// unrolling. Source of the rules for merge blocks and
// phis: SPIR-V specification, 2.11 Structured Control Flow. The module declares `modes` besides its
// own.
std::vector<uint32_t> freeze(std::span<const uint32_t> words,
                             std::span<const std::pair<uint32_t, uint32_t>> values,
                             bool unrolls = true, std::span<const FloatMode> modes = {});

}  // namespace rw::vulkan
