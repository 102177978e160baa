#include "backends/vulkan/pipelines/statistics.h"

#include <algorithm>

#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/pipelines/kernels.h"
#include "backends/vulkan/pipelines/pipelines.h"
#include "backends/vulkan/pipelines/profile.h"
#include "backends/vulkan/pipelines/specializations.h"

namespace rw::vulkan {

namespace {

template <class F>
F function(const Device& device, const char* name) {
  return reinterpret_cast<F>(vkGetDeviceProcAddr(device.handle(), name));
}

double number(const VkPipelineExecutableStatisticKHR& s) {
  switch (s.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
      return s.value.b32;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
      return static_cast<double>(s.value.i64);
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
      return static_cast<double>(s.value.u64);
    default:
      return s.value.f64;
  }
}

uint64_t count(std::string_view code, std::string_view text) {
  uint64_t n = 0;
  for (size_t at = code.find(text); at != code.npos; at = code.find(text, at + text.size())) ++n;
  return n;
}

// Asks one device about its pipelines.
class Compiler {
 public:
  explicit Compiler(const Device& device)
      : device_(device),
        properties_(function<PFN_vkGetPipelineExecutablePropertiesKHR>(
            device, "vkGetPipelineExecutablePropertiesKHR")),
        statistics_(function<PFN_vkGetPipelineExecutableStatisticsKHR>(
            device, "vkGetPipelineExecutableStatisticsKHR")),
        representations_(function<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>(
            device, "vkGetPipelineExecutableInternalRepresentationsKHR")) {}

  // A pipeline may have several executables; the largest number of each kind counts.
  void ask(VkPipeline pipeline, const std::string& text, PipelineStatistics& into) const {
    VkPipelineInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR};
    info.pipeline = pipeline;
    const auto properties = list<VkPipelineExecutablePropertiesKHR>(
        [&](uint32_t* count, VkPipelineExecutablePropertiesKHR* data) {
          vk_check(properties_(device_.handle(), &info, count, data),
                   "vkGetPipelineExecutablePropertiesKHR");
        },
        {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR});
    for (uint32_t i = 0; i < properties.size(); ++i) {
      into.subgroup_size = std::max<uint64_t>(into.subgroup_size, properties[i].subgroupSize);
      VkPipelineExecutableInfoKHR which{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR};
      which.pipeline = pipeline;
      which.executableIndex = i;
      add_statistics(which, into);
      if (!text.empty()) into.found += count(code(which), text);
    }
  }

 private:
  void add_statistics(const VkPipelineExecutableInfoKHR& which, PipelineStatistics& into) const {
    const auto all = list<VkPipelineExecutableStatisticKHR>(
        [&](uint32_t* count, VkPipelineExecutableStatisticKHR* data) {
          vk_check(statistics_(device_.handle(), &which, count, data),
                   "vkGetPipelineExecutableStatisticsKHR");
        },
        {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
    for (const auto& s : all) {
      const auto known = std::find_if(into.raw.begin(), into.raw.end(),
                                      [&](const auto& entry) { return entry.first == s.name; });
      if (known == into.raw.end())
        into.raw.emplace_back(s.name, number(s));
      else
        known->second = std::max(known->second, number(s));
    }
  }

  // The driver's last representation: the machine's own instructions.
  std::string code(const VkPipelineExecutableInfoKHR& which) const {
    const auto ask = [&](uint32_t* count, VkPipelineExecutableInternalRepresentationKHR* data) {
      vk_check(representations_(device_.handle(), &which, count, data),
               "vkGetPipelineExecutableInternalRepresentationsKHR");
    };
    auto all = list<VkPipelineExecutableInternalRepresentationKHR>(
        ask, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
    auto count = static_cast<uint32_t>(all.size());
    std::vector<std::string> texts(count);
    for (uint32_t i = 0; i < count; ++i) {
      texts[i].resize(all[i].dataSize);
      all[i].pData = texts[i].data();
    }
    ask(&count, all.data());
    return texts.empty() ? "" : texts.back();
  }

  const Device& device_;
  PFN_vkGetPipelineExecutablePropertiesKHR properties_;
  PFN_vkGetPipelineExecutableStatisticsKHR statistics_;
  PFN_vkGetPipelineExecutableInternalRepresentationsKHR representations_;
};

// Whether the module depends on how words of halves are stored (PACKS_HALVES).
bool stores_halves(const Shader& shader) {
  return !shader.packed &&
         std::any_of(shader.bindings.begin(), shader.bindings.end(), [](const ShaderBinding& b) {
           return b.dtype == DType::f16 && b.access != Access::read;
         });
}

bool has_halves(const Shader& shader) {
  return std::any_of(shader.bindings.begin(), shader.bindings.end(),
                     [](const ShaderBinding& b) { return b.dtype == DType::f16; });
}

PipelineStatistics entry(const Shader& shader, const Caps& caps, bool brain) {
  PipelineStatistics s;
  s.kernel = shader.kernel;
  for (const ShaderBinding& b : shader.bindings)
    s.dtypes += fmt::format("{}{}", s.dtypes.empty() ? "" : " ",
                            brain && b.dtype == DType::f16 ? "bf16" : name(b.dtype));
  if (shader.packed)
    s.storage = "words";
  else if (stores_halves(shader) && (brain || caps.packs_halves))
    s.storage = "packed";
  else if (has_halves(shader))
    s.storage = "16-bit storage";
  s.bindings = shader.address ? "addresses" : "descriptors";
  return s;
}

// The names of the numbers in Mesa's RADV, NVK, Honeykrisp and Turnip, and in NVIDIA's driver.
// Spills are spilled registers, accesses to their memory, or its bytes, whichever a driver counts;
// arrays that do not fit the registers are included.
using Names = std::vector<const char*>;
const Names kRegisters = {"VGPRs",          "Number of GPRs", "GPRs",
                          "Registers used", "Register Count", "Max live registers"};
const Names kSpills = {
    "Spilled VGPRs",    "Spilled SGPRs",     "Scratch size",  // RADV
    "Spills to memory", "Fills from memory", "SLM size",     "Spills",           "Fills",
    "Scratch",          "STP Count",         "LDP Count",    "Local Memory Size"};
const Names kShared = {"LDS size", "Shared Memory Size", "Workgroup Memory Size"};
const Names kInstructions = {"Instructions", "Instruction count", "Instruction Count"};

std::optional<uint64_t> sum(const PipelineStatistics& s, const Names& names) {
  std::optional<uint64_t> total;
  for (const auto& [name, value] : s.raw)
    if (std::find(names.begin(), names.end(), name) != names.end())
      // NVIDIA's local memory has another number in the upper half.
      total = total.value_or(0) + static_cast<uint32_t>(static_cast<uint64_t>(value));
  return total;
}

}  // namespace

void interpret(PipelineStatistics& s) {
  s.registers = sum(s, kRegisters);
  s.spills = sum(s, kSpills);
  s.shared_bytes = sum(s, kShared);
  s.instructions = sum(s, kInstructions);
}

std::vector<PipelineStatistics> pipeline_statistics(const std::string& choice,
                                                    const std::vector<RefusedFeature>& without,
                                                    const std::string& text,
                                                    const std::string& only) {
  std::vector<PipelineStatistics> all;
  const auto compile = [&](const Device& device, bool only_halves) {
    VkPipelineCreateFlags flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    if (!text.empty()) flags |= VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    std::vector<PipelineKey> keys;
    for (const Shader* shader : Kernels(device.caps()).modules()) {
      if (only_halves && !stores_halves(*shader)) continue;
      if (std::string_view(shader->kernel).find(only) == std::string_view::npos) continue;
      for (const bool brain : {false, true}) {
        if (brain && (only_halves || !has_halves(*shader))) continue;  // bf16 is always packed
        if (!is_for_halves(shader->kernel, brain)) continue;
        for (const std::vector<uint32_t>& values : specializations(*shader, device.caps()))
          keys.push_back(key_of(*shader, values, brain));
      }
    }
    Pipelines pipelines(device, flags);
    pipelines.make_ahead(keys);
    const Compiler compiler(device);
    for (const PipelineKey& key : keys) {
      const std::span values(key.values.data(), key.count);
      PipelineStatistics s = entry(*key.shader, device.caps(), key.brain);
      s.constants = describe(*key.shader, values);
      compiler.ask(pipelines.get(*key.shader, values, key.brain), text, s);
      interpret(s);
      all.push_back(std::move(s));
    }
  };
  const Device device(choice, without, Device::Use::statistics);
  compile(device, false);
  // The self-check may take half packing away from a device that offers it, so both ways count.
  if (to_info(device.caps()).has("half packing")) {
    std::vector<RefusedFeature> more = without;
    more.push_back({"half packing", ""});
    compile(Device(choice, more, Device::Use::statistics), true);
  }
  return all;
}

}  // namespace rw::vulkan
