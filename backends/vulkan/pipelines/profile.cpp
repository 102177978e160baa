#include "backends/vulkan/pipelines/profile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <limits>

#include "backends/vulkan/device/shader_table.h"
#include "backends/vulkan/device/tuning_file.h"
#include "core/files/json_file.h"

namespace rw::vulkan {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kAny = UINT32_MAX, kBytes = uint64_t{1} << 62;

// The limits of a number: from what Vulkan guarantees to what no device exceeds.
struct Range {
  uint64_t low, high;
  bool power_of_two = false;
};

// The members that decide about memory and kernel variants, or that people want to read.
template <class C, class F>
void each_member(C& caps, F&& member) {
  member("name", caps.name);
  member("driver", caps.driver);
  member("driver_version", caps.driver_version);
  member("uuid", caps.uuid);
  member("is_cpu", caps.is_cpu);
  member("unified_memory", caps.unified_memory);
  member("features", caps.features, Range{0, kAny});
  member("subgroup_size", caps.subgroup_size, Range{1, 1024, true});
  member("workgroup_size", caps.workgroup_size, Range{1, 1 << 16});
  member("subgroup_size_control", caps.subgroup_size_control);
  member("few_registers", caps.few_registers);
  member("multiprocessors", caps.multiprocessors, Range{1, 1 << 16});
  member("matrix_f16", caps.matrices.f16, Range{0, 16});
  member("matrix_bf16", caps.matrices.bf16, Range{0, 16});
  member("matrix_subgroup", caps.matrices.subgroup, Range{0, 32});
  member("shared_bytes", caps.shared_bytes, Range{1, kAny});
  member("max_push_bytes", caps.max_push_bytes, Range{128, kAny});
  member("max_threads", caps.max_threads, Range{128, kAny});
  member("max_groups", caps.max_groups, Range{1, kAny});
  member("max_range", caps.max_range, Range{1, kBytes});
  member("max_block", caps.max_block, Range{1, kBytes});
  member("heap_bytes", caps.heap_bytes, Range{1, kBytes});
  member("offset_alignment", caps.offset_alignment, Range{1, 1 << 16, true});
}

// Reads members out of a profile.
struct Reader {
  const Json& json;
  const std::string& file;

  std::string what(const char* name) const { return fmt::format("\"{}\" of '{}'", name, file); }
  const Json& at(const char* name) const {
    check<FileError>(json.is_object() && json.contains(name), "device profile",
                     "{} is missing: profiles are written by `plan --save-profile`", what(name));
    return json[name];
  }

  void operator()(const char* name, std::string& value) const {
    check<FileError>(at(name).is_string(), "device profile", "{} must be a text, got {}",
                     what(name), describe_json(at(name)));
    value = at(name).get<std::string>();
  }
  void operator()(const char* name, bool& value) const {
    check<FileError>(at(name).is_boolean(), "device profile", "{} must be true or false, got {}",
                     what(name), describe_json(at(name)));
    value = at(name).get<bool>();
  }
  template <std::unsigned_integral T>
  void operator()(const char* name, T& value, Range range) const {
    const auto high = static_cast<T>(std::min<uint64_t>(range.high, std::numeric_limits<T>::max()));
    value = bounded_number<T>(at(name), static_cast<T>(range.low), high, what(name));
    check<FileError>(!range.power_of_two || std::has_single_bit(value), "device profile",
                     "{} must be a power of two, got {}", what(name), value);
  }
  void operator()(const char* name, std::array<uint32_t, 3>& value, Range range) const {
    check<FileError>(at(name).is_array() && at(name).size() == value.size(), "device profile",
                     "{} must be a list of 3 numbers, got {}", what(name), describe_json(at(name)));
    for (size_t i = 0; i < value.size(); ++i)
      value[i] = bounded_number<uint32_t>(at(name)[i], static_cast<uint32_t>(range.low),
                                          static_cast<uint32_t>(range.high), what(name));
  }
};

}  // namespace

std::string to_json(const Caps& caps) {
  Json json;
  each_member(caps, [&](const char* name, const auto& value, auto...) { json[name] = value; });
  if (caps.tuning != Tuning{}) json["tuning"] = tuning_json(caps.tuning);
  return json.dump(2) + "\n";
}

Caps parse_caps(const std::string& text, const std::string& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    fail<FileError>("device profile", "'{}' must be JSON as `plan --save-profile` writes it: {}",
                    file, e.what());
  }
  // Profiles of earlier versions do not tell two of them.
  if (json.is_object()) json.emplace("few_registers", false);
  Caps caps;
  each_member(caps, Reader{json, file});
  caps.features |= feature::halves;
  if (json.contains("tuning")) caps.tuning = parse_tuning(json["tuning"], file);
  return caps;
}

// Where nothing was measured, it is what copies get over 16 lanes of PCIe 4, of the 31.5 GB/s that
// these carry, and what a processor gets of the 60 GB/s of two channels of memory.
HostBandwidth host_bandwidth(const Caps& caps) {
  constexpr double assumed = 25e9, assumed_updates = 40e9;
  if (caps.unified_memory) return {};
  const auto or_assumed = [](uint64_t measured, double otherwise) {
    return measured > 0 ? static_cast<double>(measured) : otherwise;
  };
  return {or_assumed(caps.tuning.to_host, assumed), or_assumed(caps.tuning.from_host, assumed),
          or_assumed(caps.tuning.host_updates, assumed_updates)};
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
  info.features = optional_features(caps);
  info.host_bandwidth = host_bandwidth(caps);
  if (const size_t count = caps.tuning.choices.size())
    info.tuning = fmt::format("{} choices of {}", count, caps.tuning.made);
  return info;
}

}  // namespace rw::vulkan
