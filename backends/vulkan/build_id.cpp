#include "rewind/backends/vulkan/build_id.h"

#include "rewind/backends/vulkan/shader_table.h"
#include "rewind/core/base/hash.h"

namespace rw::vulkan {

uint64_t build_id() {
  static const uint64_t id = [] {  // of megabytes: once
    uint64_t hash = fnv1a_start;
    for (const std::span<const Shader> file : all_shaders())
      for (const Shader& s : file) {
        hash = fnv1a(hash, s.features);
        for (const uint32_t word : s.words) hash = fnv1a(hash, word);
      }
    return hash;
  }();
  return id;
}

}  // namespace rw::vulkan
