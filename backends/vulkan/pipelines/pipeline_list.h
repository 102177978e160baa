// The list of the pipelines that a program has used, as text, for when the program runs again.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../../core/base/hash.h"
#include "../device/caps.h"
#include "../device/shader_table.h"

namespace rw::vulkan {

inline constexpr uint32_t kMaxVariant = 8;

// The parts of a pipeline: a module, the values of a call's variant, and whether its 16-bit floats
// are bf16.
struct PipelineKey {
  const Shader* shader;
  size_t count;
  std::array<uint32_t, kMaxVariant> values;
  bool brain;
  auto operator<=>(const PipelineKey&) const = default;
  size_t hash() const {
    uint64_t mixed = fnv1a(fnv1a_start, reinterpret_cast<uintptr_t>(shader));
    for (size_t i = 0; i < count; ++i) mixed = fnv1a(mixed, values[i]);
    return fnv1a(mixed, brain);
  }
};
PipelineKey key_of(const Shader& shader, std::span<const uint32_t> variant, bool brain);

// Writes one line each. Modules have names that other builds and drivers know, too.
std::string write_pipelines(std::span<const PipelineKey> all);
// Leaves out lines of modules that this build does not have, or the device cannot run.
std::vector<PipelineKey> parse_pipelines(std::string_view text, const Caps& caps);

// There is one file for each device and program, in the cache's folder.
std::string pipeline_list_file(const Caps& caps);

}  // namespace rw::vulkan
