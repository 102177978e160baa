#include "backends/reference/run_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "backends/reference/kernels.h"
#include "core/backend/halves.h"
#include "core/base/error.h"

namespace rw::reference {
namespace {

char letter(DType dtype) {
  return "fhbiu"[static_cast<int>(dtype)];
}

bool accepts(std::string_view combination, std::span<const Binding> bindings) {
  for (size_t i = 0; i < bindings.size(); ++i)
    if (combination[i] != letter(written_for(bindings, bindings[i].dtype))) return false;
  return true;
}

using Kernels = std::map<std::string_view, Kernel>;
const Kernels& all_kernels() {
  static const Kernels all = [] {
    Kernels by_name;
    for (const Kernel& kernel : shader_kernels) by_name.emplace(kernel.name, kernel);
    for (const Kernel& kernel : composed_kernels) by_name.emplace(kernel.name, kernel);
    return by_name;
  }();
  return all;
}

// Turns "fh" into "f32 f16".
std::string dtypes_of(std::string_view letters) {
  std::string names;
  for (const char c : letters)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
      if (letter(dtype) == c) names += fmt::format("{}{}", names.empty() ? "" : " ", name(dtype));
  return names;
}

}  // namespace

std::vector<KernelVariant> kernel_variants() {
  std::vector<KernelVariant> all;
  for (const auto& [name, kernel] : all_kernels())
    for (std::string_view rest = kernel.types; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size());
      all.push_back({std::string(name), dtypes_of(rest.substr(0, end)), "plain loop", ""});
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  return all;
}

std::vector<std::string_view> kernel_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, kernel] : all_kernels()) names.push_back(name);
  return names;
}

const Kernel& find_kernel(std::string_view name) {
  const auto found = all_kernels().find(name);
  check<ValueError>(found != all_kernels().end(), name,
                    "the reference backend has no kernel of this name");
  return found->second;
}

void check_call(const Kernel& kernel, const KernelCall& call) {
  check<ValueError>(call.params.size() == kernel.params_size, call.kernel,
                    "params must be {} bytes, got {}", kernel.params_size, call.params.size());
  const size_t count = std::min(kernel.types.find(' '), kernel.types.size());
  check<ValueError>(call.bindings.size() == count, call.kernel, "needs {} bindings, got {}", count,
                    call.bindings.size());

  for (size_t at = 0; at < kernel.types.size(); at += count + 1)
    if (accepts(kernel.types.substr(at), call.bindings)) return;
  std::string known, got;
  for (size_t at = 0; at < kernel.types.size(); at += count + 1)
    known +=
        fmt::format("{}({})", at == 0 ? "" : " or ", dtypes_of(kernel.types.substr(at, count)));
  for (const Binding& binding : call.bindings)
    got += fmt::format("{}{}", got.empty() ? "" : " ", name(binding.dtype));
  fail<DTypeError>(call.kernel, "takes tensors of {}, got ({}); cast them", known, got);
}

void run_loop(const Kernel& kernel, const KernelCall& call, std::span<std::byte* const> memory) {
  kernel.run(Call(call, memory));
}

void run_kernel(const KernelCall& call, std::span<std::byte* const> memory) {
  const Kernel& kernel = find_kernel(call.kernel);
  check_call(kernel, call);
  run_loop(kernel, call, memory);
}

}  // namespace rw::reference
