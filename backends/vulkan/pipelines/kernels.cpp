#include "backends/vulkan/pipelines/kernels.h"

#include <algorithm>
#include <map>

#include "core/backend/halves.h"
#include "core/backend/unsupported.h"

namespace rw::vulkan {

namespace {

constexpr uint64_t byte_of(DType dtype) {
  return static_cast<uint64_t>(dtype) + 1;  // 0: no binding
}

Signature signature(const Shader& shader) {
  Signature s{shader.kernel};
  for (size_t i = 0; i < shader.bindings.size(); ++i)
    s.dtypes |= byte_of(shader.bindings[i].dtype) << 8 * i;
  return s;
}

Signature signature(std::string_view kernel, std::span<const Binding> bindings) {
  Signature s{kernel};
  const DType brain = written_for(bindings, DType::bf16);
  for (size_t i = 0; i < bindings.size(); ++i) {
    const DType dtype = bindings[i].dtype;
    s.dtypes |= byte_of(dtype == DType::bf16 ? brain : dtype) << 8 * i;
  }
  return s;
}

// "f32 i32"
std::string dtypes_of(const Signature& s) {
  std::string all;
  for (uint64_t left = s.dtypes; left; left >>= 8) {
    if (!all.empty()) all += ' ';
    all += name(static_cast<DType>((left & 0xff) - 1));
  }
  return all;
}

std::string text(const Signature& s) {
  return std::string(s.kernel) + ' ' + dtypes_of(s);
}

std::string feature_names(uint32_t features) {
  const char* names[] = {"subgroup",      "vote",
                         "arithmetic",    "ballot",
                         "shuffle",       "",
                         "float16",       "storage16",
                         "address",       "cooperative matrices",
                         "bf16 matrices", "texels",
                         "16-bit floats"};
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
  BySignature<Kernel> found;
  for (const Shader& s : all_shaders()) {
    if (s.stands_in != stand_ins) continue;
    // Packed variants are for devices without 16-bit storage only.
    if (s.packed && (caps.features & feature::storage16)) continue;
    const Signature k = signature(s);
    if (const uint32_t lacking = s.features & ~caps.features) {
      lacking_.try_emplace(k, lacking);
      continue;
    }
    Kernel& kernel = found[k];
    (s.address ? kernel.address : kernel.descriptors) = &s;
  }
  usable_.merge(found);  // keeps existing entries
}

std::vector<KernelVariant> Kernels::variants() const {
  const auto entry = [](const Signature& s) {
    return KernelVariant{std::string(s.kernel), dtypes_of(s), "", ""};
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
    all.emplace(text(k), std::move(v));
  }
  for (const auto& [k, lacking] : lacking_) {
    if (all.contains(text(k))) continue;
    KernelVariant v = entry(k);
    v.lacks = feature_names(lacking).substr(1);
    all.emplace(text(k), std::move(v));
  }
  std::vector<KernelVariant> list;
  for (auto& [k, v] : all) list.push_back(std::move(v));
  return list;
}

std::vector<const Shader*> Kernels::modules() const {
  std::map<std::string, Kernel> sorted;
  for (const auto& [k, kernel] : usable_) sorted.emplace(text(k), kernel);
  std::vector<const Shader*> all;
  for (const auto& [k, kernel] : sorted)
    for (const Shader* shader : {kernel.descriptors, kernel.address})
      if (shader) all.push_back(shader);
  return all;
}

const Kernel* Kernels::find(std::string_view name, std::span<const Binding> bindings) const {
  const auto it = usable_.find(signature(name, bindings));
  return it == usable_.end() ? nullptr : &it->second;
}

const Kernel& Kernels::get(std::string_view name, std::span<const Binding> bindings) const {
  if (const Kernel* kernel = find(name, bindings)) return *kernel;
  const Signature k = signature(name, bindings);
  if (auto it = lacking_.find(k); it != lacking_.end())
    fail<Unsupported>(name, "the device must have these features for '{}':{}", text(k),
                      feature_names(it->second));
  fail<ValueError>(name, "there must be a shader for these dtypes, got '{}'", text(k));
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
