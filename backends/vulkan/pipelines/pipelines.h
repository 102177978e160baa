// Compute pipelines, created on first use and kept; the driver's compiled code is cached on disk.
// Background threads create those that the program used in its last run ahead of their first use,
// and new ones are saved while it runs.
#pragma once

#include <array>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../device/device.h"
#include "../device/shader_table.h"
#include "made_once.h"
#include "pipeline_list.h"

namespace rw::vulkan {

// MOST_THREADS of reduce.glsl, the size of its arrays: no workgroup of a kernel with `local:
// subgroup` is larger.
inline constexpr uint32_t most_row_threads = 128;
inline constexpr uint32_t kMaxBindings = 8;
// Texels of binding i are binding kTexels + i (TEXELS of shaders/compiler/prelude.py).
inline constexpr uint32_t kTexels = kMaxBindings;

class Pipelines {
 public:
  // `flags` are those of every pipeline. If there are any, compiled code is neither read from disk
  // nor kept there.
  explicit Pipelines(const Device& device, VkPipelineCreateFlags flags = 0);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // `variant` has the specialization constants 0, 1, ..., as specialization() takes them. `brain`:
  // its 16-bit floats are bf16.
  VkPipeline get(const Shader& shader, std::span<const uint32_t> variant, bool brain);
  // Makes these in threads on all cores, until get() has asked for the last one.
  void make_ahead(std::vector<PipelineKey> keys);
  // Starts the background threads with the first pipeline that is asked for; they live as long as
  // this object. Does nothing with REWIND_WITHOUT=background-pipelines.
  void work_ahead() { works_ahead_ = !is_without("background-pipelines"); }
  // One layout per number of storage buffers, with and without texels; all have room for 128 bytes
  // of push constants.
  struct Layout {
    VkDescriptorSetLayout set = nullptr;
    VkPipelineLayout pipeline = nullptr;
  };
  const Layout& layout(const Shader& shader) const;
  size_t count() const { return used_.size(); }  // pipelines that calls asked for

 private:
  Layout create_layout(uint32_t buffers, bool texels) const;
  VkPipeline create(const PipelineKey& key) const;
  VkShaderModule module(const PipelineKey& key, uint32_t workgroup_size,
                        uint32_t subgroup_size) const;
  std::string cache_file() const;
  VkResult create_cache(VkPipelineCache& cache, size_t& bytes) const;
  void save_cache();
  void save_list();
  void start_threads();
  void keep_saved(std::stop_token stop);

  const Device& device_;
  const VkPipelineCreateFlags flags_;
  VkPipelineCache cache_ = nullptr;
  // The size of cache_ when it was saved.
  size_t saved_bytes_ = 0;
  std::array<std::array<Layout, kMaxBindings + 1>, 2> layouts_{};  // without and with texels

  MadeOnce<PipelineKey, VkPipeline> made_{[this](const PipelineKey& key) { return create(key); }};
  // A part of made_ that belongs to the calling thread.
  std::unordered_map<PipelineKey, VkPipeline, KeyHash> used_;
  std::mutex order_mutex_;
  std::vector<PipelineKey> order_;    // used_, in order of the first use
  std::vector<PipelineKey> earlier_;  // the list on disk when the device was opened
  size_t listed_ = 0;                 // those of order_ that are in the list on disk
  bool works_ahead_ = false;
  std::jthread keeper_;  // saves
};

}  // namespace rw::vulkan
