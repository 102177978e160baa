#include "rewind/backends/vulkan/kernels.h"

#include <algorithm>
#include <map>
#include <type_traits>

#include "rewind/core/backend/halves.h"
#include "rewind/core/backend/unsupported.h"

namespace rw::vulkan {

namespace {

using KeyText = fmt::basic_memory_buffer<char, 128>;  // without allocations: calls are many

std::string_view text(const KeyText& key) {
  return {key.data(), key.size()};
}

// A module or a call: its name with the dtypes of its bindings.
template <class Bindings>
KeyText key(std::string_view name, const Bindings& bindings) {
  KeyText all;
  all.append(name);
  for (const auto& b : bindings) {
    all.push_back(' ');
    if constexpr (std::is_same_v<Bindings, std::span<const Binding>>)
      all.append(std::string_view(rw::name(written_for(bindings, b.dtype))));
    else
      all.append(std::string_view(rw::name(b.dtype)));
  }
  return all;
}

std::string feature_names(uint32_t features) {
  const char* names[] = {
      "subgroup",      "vote",    "arithmetic",   "ballot",  "shuffle",
      "int64",         "float16", "storage16",    "address", "cooperative matrices",
      "bf16 matrices", "texels",  "16-bit floats"};
  std::string text;
  for (size_t i = 0; i < std::size(names); ++i)
    if (features >> i & 1) text += fmt::format(" {}", names[i]);
  return text;
}

}  // namespace

Kernels::Kernels(const Caps& caps) {
  add(caps, false);
  add(caps, true);
}

void Kernels::add(const Caps& caps, bool stand_ins) {
  ByText<Kernel> found;
  for (const Shader& s : all_shaders()) {
    if (s.stands_in != stand_ins) continue;
    // Packed variants are for devices without 16-bit storage only.
    if (s.packed && (caps.features & feature::storage16)) continue;
    const std::string k(text(key(s.kernel, s.bindings)));
    if (const uint32_t lacking = s.features & ~caps.features) {
      lacking_.try_emplace(k, lacking);
      continue;
    }
    Kernel& kernel = found[k];
    (s.address ? kernel.address : kernel.descriptors) = &s;
  }
  usable_.merge(found);  // what is there stays
}

std::vector<KernelVariant> Kernels::variants() const {
  const auto entry = [](const std::string& k) {
    const size_t space = std::min(k.find(' '), k.size());
    return KernelVariant{k.substr(0, space), k.substr(std::min(space + 1, k.size())), "", ""};
  };
  std::map<std::string, KernelVariant> all;
  for (const auto& [k, kernel] : usable_) {
    const Shader& shader = kernel.descriptors ? *kernel.descriptors : *kernel.address;
    KernelVariant v = entry(k);
    if (v.dtypes.find("f16") != std::string::npos)
      v.variant = shader.packed ? "halves in words, " : "16-bit storage, ";
    v.variant += !kernel.address       ? "descriptors"
                 : !kernel.descriptors ? "addresses"
                                       : "descriptors or addresses";
    all.emplace(k, std::move(v));
  }
  for (const auto& [k, lacking] : lacking_) {
    if (all.contains(k)) continue;
    KernelVariant v = entry(k);
    v.lacks = feature_names(lacking).substr(1);
    all.emplace(k, std::move(v));
  }
  std::vector<KernelVariant> list;
  for (auto& [k, v] : all) list.push_back(std::move(v));
  return list;
}

std::vector<const Shader*> Kernels::modules() const {
  const std::map<std::string, Kernel> sorted(usable_.begin(), usable_.end());
  std::vector<const Shader*> all;
  for (const auto& [k, kernel] : sorted)
    for (const Shader* shader : {kernel.descriptors, kernel.address})
      if (shader) all.push_back(shader);
  return all;
}

const Kernel* Kernels::find(std::string_view name, std::span<const Binding> bindings) const {
  const auto it = usable_.find(text(key(name, bindings)));
  return it == usable_.end() ? nullptr : &it->second;
}

const Kernel& Kernels::get(std::string_view name, std::span<const Binding> bindings) const {
  if (const Kernel* kernel = find(name, bindings)) return *kernel;
  const std::string k(text(key(name, bindings)));
  if (auto it = lacking_.find(k); it != lacking_.end())
    fail<Unsupported>(name, "the device must have these features for '{}':{}", k,
                      feature_names(it->second));
  fail<ValueError>(name, "there must be a shader for these dtypes, got '{}'", k);
}

std::array<uint32_t, 3> workgroups(const Shader& shader, const KernelCall& call, const Caps& caps) {
  const uint32_t width = shader.local[0] ? shader.local[0] : caps.workgroup_size;
  const auto groups = [](uint32_t threads, uint32_t local) {
    return static_cast<uint32_t>((uint64_t{threads} + local - 1) / local);
  };
  switch (shader.grid) {
    case Grid::cube:
      return {groups(call.threads[0], width), groups(call.threads[1], shader.local[1]),
              groups(call.threads[2], shader.local[2])};
    case Grid::words: {
      const auto output = std::find_if(call.bindings.begin(), call.bindings.end(),
                                       [](const Binding& b) { return b.access != Access::read; });
      const uint64_t words = output->range.size / size_of(output->dtype) / 4;
      return {groups(static_cast<uint32_t>(words), width), 1, 1};
    }
    case Grid::groups:
      return {call.threads[0], 1, 1};
    case Grid::threads:
      break;
  }
  return {groups(call.threads[0], width), 1, 1};
}

}  // namespace rw::vulkan
