#include "backends/vulkan/pipelines/specializations.h"

#include <algorithm>

#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/passes/attention.h"
#include "core/base/error.h"

namespace rw::vulkan {

namespace {

bool starts_with(std::string_view text, std::string_view head) {
  return text.substr(0, head.size()) == head;
}

// A device uses only some of attention's tiles.
bool may_attend(std::string_view kernel, const Caps& caps) {
  if (starts_with(kernel, "attention") && kernel.find("_cooperative.") != kernel.npos)
    return !caps.is_cpu &&
           attends_by_matrices(caps, kernel.ends_with("bf16") ? DType::bf16 : DType::f16);
  for (const char* name : {"attention", "attention_dq", "attention_dkv"})
    if (starts_with(kernel, fmt::format("{}_tiled", name)))
      return attention_tile(caps, 64, name).module == kernel ||
             attention_tile(caps, ATTENTION_MAX_DIM, name).module == kernel;
  return true;
}

// Values that depend on the device.
bool is_for(const Caps& caps, const Shader& shader, std::string_view constant, uint32_t value) {
  if (constant == "RESULTS") {
    const std::string_view kernel = shader.kernel, name = kernel.substr(0, kernel.find("_tiled"));
    if (name.size() == kernel.size()) return true;  // of cooperative matrices
    const AttentionTile widest = attention_tile(caps, ATTENTION_MAX_DIM, name);
    return value <= (widest.module == kernel ? widest.results : 1);
  }
  if (constant == "BLOCK_ROWS") return value == 16 || !caps.few_registers;
  if (constant == "TEAM") return value != 8 || caps.subgroup_size % 8 == 0;
  // This follows add_wgrad().
  if (constant == "WORDS_X")
    return value != 0 || !std::string_view(shader.kernel).ends_with("TILE128");
  if (constant == "LANES") return value <= caps.subgroup_size;
  return true;
}

}  // namespace

std::vector<std::vector<uint32_t>> specializations(const Shader& shader, const Caps& caps) {
  if (!may_run(shader.kernel, caps) || !may_attend(shader.kernel, caps)) return {};
  std::vector<std::vector<uint32_t>> all = {{}};
  for (const ShaderConstant& c : shader.constants) {
    std::vector<std::vector<uint32_t>> longer;
    for (const std::vector<uint32_t>& values : all)
      for (const uint32_t value : c.values) {
        if (!is_for(caps, shader, c.name, value)) continue;
        longer.push_back(values);
        longer.back().push_back(value);
      }
    all = std::move(longer);
  }
  return all;
}

std::vector<uint32_t> specialization(const Shader& shader, const Caps& caps,
                                     std::span<const uint32_t> variant) {
  std::vector<uint32_t> values;
  for (const ShaderConstant& c : shader.constants) values.push_back(c.otherwise);
  std::copy_n(variant.begin(), std::min(variant.size(), values.size()), values.begin());
  bool may = may_run(shader.kernel, caps) && may_attend(shader.kernel, caps);
  for (size_t i = 0; may && i < values.size(); ++i) {
    const ShaderConstant& c = shader.constants[i];
    const bool is_listed = std::find(c.values.begin(), c.values.end(), values[i]) != c.values.end();
    may = c.is_open || (is_listed && is_for(caps, shader, c.name, values[i]));
  }
  check<ValueError>(
      may, shader.kernel,
      "a variant must be one that the shader declares and the device may run, got '{}'",
      describe(shader, values));
  return values;
}

std::string describe(const Shader& shader, std::span<const uint32_t> values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{}={}", i ? " " : "", shader.constants[i].name, values[i]);
  return text;
}

}  // namespace rw::vulkan
