#include "backends/vulkan/pipelines/pipelines.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <system_error>
#include <utility>

#include "backends/vulkan/device/freeze.h"
#include "backends/vulkan/pipelines/specializations.h"
#include "core/backend/unsupported.h"
#include "core/files/cache.h"

namespace rw::vulkan {

namespace {

constexpr uint32_t kPushBytes = 128;
constexpr uint32_t kWorkgroupSizeId = 100, kSubgroupSizeId = 101, kPacksHalvesId = 102,
                   kBrainId = 103, kMatrixShapeId = 104, kMatrixSubgroupsId = 107,
                   kFewRegistersId = 108, kUnrollId = 109;
constexpr uint32_t kSubgroupFeatures =
    feature::subgroup | feature::vote | feature::arithmetic | feature::ballot | feature::shuffle;
constexpr size_t kMostThreads = 4, kMostListed = 256;
constexpr std::chrono::seconds kSaveEvery{5};

}  // namespace

Pipelines::Pipelines(const Device& device, VkPipelineCreateFlags flags)
    : device_(device), flags_(flags) {
  if (!flags_) vk_check(create_cache(cache_, saved_bytes_), "vkCreatePipelineCache");
  const bool texels = device_.caps().features & feature::texels;
  for (uint32_t n = 0; n <= kMaxBindings; ++n) {
    layouts_[0][n] = create_layout(n, false);
    if (texels) layouts_[1][n] = create_layout(n, true);
  }
}

Pipelines::Layout Pipelines::create_layout(uint32_t buffers, bool texels) const {
  std::array<VkDescriptorSetLayoutBinding, 2 * kMaxBindings> bindings{};
  uint32_t count = 0;
  const auto add = [&](uint32_t number, VkDescriptorType type) {
    bindings[count++] = {number, type, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  };
  for (uint32_t i = 0; i < buffers; ++i) add(i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER);
  for (uint32_t i = 0; texels && i < kMaxBindings; ++i)
    add(kTexels + i, VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER);
  VkDescriptorSetLayoutCreateInfo set{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
  if (device_.caps().push_descriptors)
    set.flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR;
  set.bindingCount = count;
  set.pBindings = bindings.data();
  Layout layout;
  vk_check(vkCreateDescriptorSetLayout(device_.handle(), &set, nullptr, &layout.set),
           "vkCreateDescriptorSetLayout");
  const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes};
  VkPipelineLayoutCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.setLayoutCount = 1;
  info.pSetLayouts = &layout.set;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &push;
  vk_check(vkCreatePipelineLayout(device_.handle(), &info, nullptr, &layout.pipeline),
           "vkCreatePipelineLayout");
  return layout;
}

const Pipelines::Layout& Pipelines::layout(const Shader& shader) const {
  const bool texels = shader.features & feature::texels;
  return layouts_[texels][shader.address ? 1 : shader.bindings.size()];
}

Pipelines::~Pipelines() {
  made_.stop();
  const bool has_list = keeper_.joinable();
  keeper_ = {};
  if (!flags_) save_cache();
  if (has_list) save_list();
  made_.for_each([&](VkPipeline p) { vkDestroyPipeline(device_.handle(), p, nullptr); });
  for (const auto& kind : layouts_)
    for (const Layout& layout : kind) {
      vkDestroyPipelineLayout(device_.handle(), layout.pipeline, nullptr);
      vkDestroyDescriptorSetLayout(device_.handle(), layout.set, nullptr);
    }
  vkDestroyPipelineCache(device_.handle(), cache_, nullptr);
}

void Pipelines::make_ahead(std::vector<PipelineKey> keys) {
  made_.make_ahead(std::move(keys), std::max(std::thread::hardware_concurrency(), 1u));
}

VkPipeline Pipelines::get(const Shader& shader, std::span<const uint32_t> variant, bool brain) {
  const PipelineKey key = key_of(shader, variant, brain);
  const auto known = used_.find(key);
  if (known != used_.end()) return known->second;
  if (std::exchange(works_ahead_, false)) start_threads();
  const VkPipeline pipeline = made_.get(key);
  used_.emplace(key, pipeline);
  const std::lock_guard lock(order_mutex_);
  order_.push_back(key);
  return pipeline;
}

void Pipelines::start_threads() try {
  const std::vector<std::byte> list = read_cache(pipeline_list_file(device_.caps()));
  earlier_ =
      parse_pipelines({reinterpret_cast<const char*>(list.data()), list.size()}, device_.caps());
  // lavapipe compiles when a kernel first runs, under the lock that creating a pipeline needs.
  const size_t others = std::max(std::thread::hardware_concurrency(), 2u) - 1;
  if (device_.caps().driver_id != VK_DRIVER_ID_MESA_LLVMPIPE)
    made_.make_ahead(earlier_, std::min(others, kMostThreads));
  keeper_ = std::jthread([this](std::stop_token stop) { keep_saved(std::move(stop)); });
} catch (const std::system_error&) {  // the system has no thread to give: it goes without
}

// Looks repeatedly, and not at every new pipeline: hundreds come at once.
void Pipelines::keep_saved(std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  for (size_t saved = 0; !never.wait_for(lock, stop, kSaveEvery, [] { return false; });) {
    if (stop.stop_requested()) return;
    const size_t made = made_.made();
    if (made == saved) continue;
    saved = made;
    save_cache();
    save_list();
  }
}

VkShaderModule Pipelines::module(const PipelineKey& key, uint32_t workgroup_size,
                                 uint32_t subgroup_size) const {
  const Caps& caps = device_.caps();
  const bool is_nvidia = caps.driver_id == VK_DRIVER_ID_NVIDIA_PROPRIETARY;
  std::vector<std::pair<uint32_t, uint32_t>> constants = {
      {kWorkgroupSizeId, workgroup_size},    {kSubgroupSizeId, subgroup_size},
      {kPacksHalvesId, caps.packs_halves},   {kMatrixSubgroupsId, caps.matrices.tile_subgroups},
      {kFewRegistersId, caps.few_registers}, {kBrainId, key.brain},
      {kUnrollId, is_nvidia ? 16 : 4}};
  const MatrixShape& shape = caps.matrices.shape(key.shader->features & feature::cooperative_bf16);
  for (uint32_t i = 0; i < shape.size(); ++i) constants.emplace_back(kMatrixShapeId + i, shape[i]);
  uint32_t id = 0;
  for (const uint32_t value : specialization(*key.shader, caps, {key.values.data(), key.count}))
    constants.emplace_back(id++, value);
  // SwiftShader unrolls nested loops of known length at any cost, for minutes.
  const bool unrolls = caps.driver_id != VK_DRIVER_ID_GOOGLE_SWIFTSHADER;
  const std::vector<uint32_t> words =
      freeze(key.shader->words, constants, unrolls, caps.float_modes);
  VkShaderModuleCreateInfo info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  info.codeSize = words.size() * sizeof(uint32_t);
  info.pCode = words.data();
  VkShaderModule module = nullptr;
  vk_check(vkCreateShaderModule(device_.handle(), &info, nullptr, &module), key.shader->kernel);
  return module;
}

VkPipeline Pipelines::create(const PipelineKey& key) const {
  const Caps& caps = device_.caps();
  const bool has_matrices = key.shader->features & feature::cooperative;
  const uint32_t subgroup_size = has_matrices ? caps.matrices.subgroup : caps.subgroup_size;
  const uint32_t subgroups =
      key.shader->local[1] ? key.shader->local[1] : caps.matrices.tile_subgroups;
  const uint32_t workgroup_size = has_matrices ? subgroups * subgroup_size : caps.workgroup_size;
  check<Unsupported>(
      key.shader->local[0] || has_matrices || caps.workgroup_size <= most_row_threads,
      key.shader->kernel, "workgroups must have at most {} threads, got {}", most_row_threads,
      caps.workgroup_size);
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
  subgroup.requiredSubgroupSize = subgroup_size;
  VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.flags = flags_;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  if (caps.subgroup_size_control && (key.shader->features & kSubgroupFeatures))
    info.stage.pNext = &subgroup;
  if (has_matrices) info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module(key, workgroup_size, subgroup_size);
  info.stage.pName = "main";
  info.layout = layout(*key.shader).pipeline;
  VkPipeline pipeline = nullptr;
  VkResult result =
      vkCreateComputePipelines(device_.handle(), cache_, 1, &info, nullptr, &pipeline);
  vkDestroyShaderModule(device_.handle(), info.stage.module, nullptr);
  check<DeviceError>(result == VK_SUCCESS, key.shader->kernel,
                     "the driver must accept the shader, got {}", result_name(result));
  device_.set_name(VK_OBJECT_TYPE_PIPELINE, reinterpret_cast<uint64_t>(pipeline),
                   key.shader->kernel);
  return pipeline;
}

std::string Pipelines::cache_file() const {
  return fmt::format("pipelines-{}-{:x}.bin", device_.caps().uuid, device_.caps().driver_number);
}

// Makes a cache from the file on disk, and tells how many bytes that had. Drivers should reject a
// blob of another driver themselves; as not all do, the header is checked. Without a blob the cache
// is empty, and drivers compile again.
VkResult Pipelines::create_cache(VkPipelineCache& cache, size_t& bytes) const {
  const std::vector<std::byte> blob = read_cache(cache_file());
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(device_.physical(), &properties);
  VkPipelineCacheHeaderVersionOne header{};
  if (blob.size() >= sizeof header) std::memcpy(&header, blob.data(), sizeof header);
  const bool ours =
      header.headerSize >= sizeof header &&
      header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE &&
      header.vendorID == properties.vendorID && header.deviceID == properties.deviceID &&
      !std::memcmp(header.pipelineCacheUUID, properties.pipelineCacheUUID, VK_UUID_SIZE);
  VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  if (ours) {
    info.initialDataSize = bytes = blob.size();
    info.pInitialData = blob.data();
  }
  if (ours && vkCreatePipelineCache(device_.handle(), &info, nullptr, &cache) == VK_SUCCESS)
    return VK_SUCCESS;
  info.initialDataSize = bytes = 0;
  return vkCreatePipelineCache(device_.handle(), &info, nullptr, &cache);
}

// Saves the cache together with what other devices of this kind, of any process, have saved since
// this one was opened. Kernels that cannot be saved are compiled again.
void Pipelines::save_cache() {
  size_t own = 0, bytes = 0;
  if (vkGetPipelineCacheData(device_.handle(), cache_, &own, nullptr) != VK_SUCCESS) return;
  if (own == saved_bytes_) return;
  VkPipelineCache all = nullptr;
  if (create_cache(all, bytes) != VK_SUCCESS) return;
  std::vector<std::byte> blob;
  const auto data = [&] {
    return vkGetPipelineCacheData(device_.handle(), all, &bytes,
                                  blob.empty() ? nullptr : blob.data());
  };
  if (vkMergePipelineCaches(device_.handle(), all, 1, &cache_) == VK_SUCCESS &&
      data() == VK_SUCCESS) {
    blob.resize(bytes);
    if (data() == VK_SUCCESS) {
      write_cache(cache_file(), std::span(blob).first(bytes));
      saved_bytes_ = own;
    }
  }
  vkDestroyPipelineCache(device_.handle(), all, nullptr);
}

// The pipelines that this run has used, then those that only earlier runs have used.
void Pipelines::save_list() {
  std::vector<PipelineKey> all;
  {
    const std::lock_guard lock(order_mutex_);
    if (order_.size() == listed_) return;
    all = order_;
  }
  listed_ = all.size();
  std::vector<PipelineKey> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  for (const PipelineKey& key : earlier_)
    if (!std::binary_search(sorted.begin(), sorted.end(), key)) all.push_back(key);
  const std::string text = write_pipelines(std::span(all).first(std::min(all.size(), kMostListed)));
  write_cache(pipeline_list_file(device_.caps()), std::as_bytes(std::span(text)));
}

}  // namespace rw::vulkan
