// Compute pipelines, created on first use and kept; the driver's compiled code is cached on disk.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rewind/backends/vulkan/device.h"
#include "rewind/backends/vulkan/shader_table.h"

namespace rw::vulkan {

// MOST_THREADS of reduce.glsl, the size of its arrays: no workgroup of a kernel with `local:
// subgroup` is larger.
inline constexpr uint32_t most_row_threads = 128;
inline constexpr uint32_t kMaxBindings = 8, kMaxVariant = 8;
// Texels of binding i are binding kTexels + i (TEXELS of shaders/prelude.py).
inline constexpr uint32_t kTexels = kMaxBindings;

class Pipelines {
 public:
  // `flags`: of every pipeline. With some, compiled code is neither read from disk nor kept there.
  explicit Pipelines(const Device& device, VkPipelineCreateFlags flags = 0);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // `variant`: specialization constants 0, 1, ..., as specialization() takes them.
  // `in_parts`: for vkCmdDispatchBase, which may cost every dispatch something.
  // `brain`: its 16-bit floats are bf16.
  VkPipeline get(const Shader& shader, std::span<const uint32_t> variant, bool brain,
                 bool in_parts = false);
  // One per number of storage buffers, and for modules with texels; all have room for 128 bytes of
  // push constants.
  struct Layout {
    VkDescriptorSetLayout set = nullptr;
    VkPipelineLayout pipeline = nullptr;
  };
  const Layout& layout(const Shader& shader) const;
  size_t count() const { return pipelines_.size(); }

 private:
  struct Key {
    const Shader* shader;
    size_t count;
    std::array<uint32_t, kMaxVariant> values;
    bool brain, in_parts;
    auto operator<=>(const Key&) const = default;
  };
  Layout create_layout(uint32_t buffers, bool texels) const;
  VkPipeline create(const Key& key);
  VkShaderModule module(const Key& key, uint32_t workgroup_size, uint32_t subgroup_size) const;
  std::string cache_file() const;
  void load_cache();
  void save_cache();

  const Device& device_;
  const VkPipelineCreateFlags flags_;
  VkPipelineCache cache_ = nullptr;
  size_t loaded_bytes_ = 0;                                        // of the cache on disk
  std::array<std::array<Layout, kMaxBindings + 1>, 2> layouts_{};  // without and with texels
  std::map<Key, VkPipeline> pipelines_;
};

}  // namespace rw::vulkan
