#include "backends/vulkan/pipelines/pipeline_list.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <unordered_map>

#include "core/base/error.h"

namespace rw::vulkan {

namespace {

// Distinguishes a module from all others of a build.
std::string module_name(const Shader& shader) {
  std::string text = shader.kernel;
  for (const ShaderBinding& b : shader.bindings) text += fmt::format(",{}", name(b.dtype));
  return text + fmt::format(",{:x},{:d}{:d}", shader.features, shader.packed, shader.address);
}

// The modules that the device can run.
std::unordered_map<std::string, const Shader*> modules_by_name(const Caps& caps) {
  std::unordered_map<std::string, const Shader*> all;
  for (const Shader& shader : all_shaders())
    if (!(shader.features & ~caps.features)) all.emplace(module_name(shader), &shader);
  return all;
}

}  // namespace

PipelineKey key_of(const Shader& shader, std::span<const uint32_t> variant, bool brain) {
  check<ValueError>(variant.size() <= kMaxVariant, shader.kernel,
                    "a variant must have at most {} values, got {}", kMaxVariant, variant.size());
  PipelineKey key{&shader, variant.size(), {}, brain};
  std::copy(variant.begin(), variant.end(), key.values.begin());
  return key;
}

std::string write_pipelines(std::span<const PipelineKey> all) {
  std::string text;
  for (const PipelineKey& key : all) {
    text += fmt::format("{} {:d}", module_name(*key.shader), key.brain);
    for (size_t i = 0; i < key.count; ++i) text += fmt::format(" {}", key.values[i]);
    text += '\n';
  }
  return text;
}

std::vector<PipelineKey> parse_pipelines(std::string_view text, const Caps& caps) {
  std::vector<PipelineKey> all;
  if (text.empty()) return all;
  const auto modules = modules_by_name(caps);
  std::istringstream lines{std::string(text)};
  for (std::string line, module; std::getline(lines, line);) {
    std::istringstream words(line);
    PipelineKey key{};
    if (!(words >> module >> key.brain)) continue;
    const auto known = modules.find(module);
    if (known == modules.end()) continue;
    key.shader = known->second;
    for (uint32_t value; key.count < kMaxVariant && words >> value;)
      key.values[key.count++] = value;
    all.push_back(key);
  }
  return all;
}

std::string pipeline_list_file(const Caps& caps) {
  std::error_code unknown;  // a system without /proc has one list for all programs
  std::string program =
      std::filesystem::read_symlink("/proc/self/exe", unknown).filename().string();
  std::replace_if(
      program.begin(), program.end(),
      [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return fmt::format("pipelines-{}-{}.list", caps.uuid, program.substr(0, 64));
}

}  // namespace rw::vulkan
