#include "backends/vulkan/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backends/dry/dry_backend.h"
#include "backends/vulkan/matrix.h"

namespace rw::vulkan {

namespace {

using Json = nlohmann::json;

// The members that decide about memory and kernel variants, or that people want to read.
template <class C, class F>
void each_member(C& caps, F&& member) {
  member("name", caps.name);
  member("driver", caps.driver);
  member("driver_version", caps.driver_version);
  member("uuid", caps.uuid);
  member("is_cpu", caps.is_cpu);
  member("unified_memory", caps.unified_memory);
  member("features", caps.features);
  member("subgroup_size", caps.subgroup_size);
  member("workgroup_size", caps.workgroup_size);
  member("subgroup_size_control", caps.subgroup_size_control);
  member("shared_bytes", caps.shared_bytes);
  member("max_push_bytes", caps.max_push_bytes);
  member("max_threads", caps.max_threads);
  member("max_groups", caps.max_groups);
  member("max_range", caps.max_range);
  member("max_block", caps.max_block);
  member("heap_bytes", caps.heap_bytes);
  member("offset_alignment", caps.offset_alignment);
  member("max_loop", caps.max_loop);
}

}  // namespace

std::string to_json(const Caps& caps) {
  Json json;
  each_member(caps, [&](const char* name, const auto& value) { json[name] = value; });
  return json.dump(2) + "\n";
}

Caps parse_caps(const std::string& text) {
  Caps caps;
  try {
    const Json json = Json::parse(text);
    each_member(caps, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  } catch (const Json::exception& e) {
    fail<FileError>("device profile", "must be JSON as `plan --save-profile` writes it: {}", e.what());
  }
  return caps;
}

DeviceInfo to_info(const Caps& caps) {
  DeviceInfo info;
  info.backend = "vulkan";
  info.name = caps.name;
  info.driver = fmt::format("{} {}", caps.driver, caps.driver_version);
  info.uuid = caps.uuid;
  info.is_cpu = caps.is_cpu;
  info.memory_bytes = caps.heap_bytes;
  info.max_block_bytes = caps.max_block;
  info.alignment = std::max<uint64_t>(256, caps.offset_alignment);
  info.subgroup_size = caps.subgroup_size;
  return info;
}

std::unique_ptr<Backend> make_dry_backend(const Caps& caps) {
  const MatrixPlanner matrix(caps);
  return rw::make_dry_backend(to_info(caps), [matrix](const KernelCall& call) -> uint64_t {
    return matrix.handles(call.kernel) ? matrix.workspace_bytes(call) : 0;
  });
}

}  // namespace rw::vulkan
