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
  // One layout per number of bindings; all have room for 128 bytes of push constants.
  VkPipelineLayout layout(uint32_t bindings) const { return layouts_[bindings]; }
  VkDescriptorSetLayout set_layout(uint32_t bindings) const { return set_layouts_[bindings]; }
  size_t count() const { return pipelines_.size(); }

 private:
  struct Key {
    const Shader* shader;
    size_t count;
    std::array<uint32_t, kMaxVariant> values;
    bool brain, in_parts;
    auto operator<=>(const Key&) const = default;
  };
  VkPipeline create(const Key& key);
  VkShaderModule module(const Shader& shader);
  std::string cache_file() const;
  void load_cache();
  void save_cache();

  const Device& device_;
  const VkPipelineCreateFlags flags_;
  VkPipelineCache cache_ = nullptr;
  size_t loaded_bytes_ = 0;  // of the cache on disk
  std::array<VkDescriptorSetLayout, kMaxBindings + 1> set_layouts_{};
  std::array<VkPipelineLayout, kMaxBindings + 1> layouts_{};
  std::map<const Shader*, VkShaderModule> modules_;
  std::map<Key, VkPipeline> pipelines_;
};

}  // namespace rw::vulkan
