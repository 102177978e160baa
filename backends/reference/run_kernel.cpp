#include "backends/reference/run_kernel.h"

#include <algorithm>
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

const Kernel& find_kernel(std::string_view name) {
  for (const std::span<const Kernel> table :
       {std::span<const Kernel>(shader_kernels), std::span<const Kernel>(composed_kernels)})
    for (const Kernel& kernel : table)
      if (kernel.name == name) return kernel;
  fail<ValueError>(name, "the reference backend has no kernel of this name");
}

void check_call(const Kernel& kernel, const KernelCall& call) {
  check<ValueError>(call.params.size() == kernel.params_size, call.kernel,
                    "params must be {} bytes, got {}", kernel.params_size, call.params.size());
  const size_t count = std::min(kernel.types.find(' '), kernel.types.size());
  check<ValueError>(call.bindings.size() == count, call.kernel, "needs {} bindings, got {}", count,
                    call.bindings.size());

  for (size_t at = 0; at < kernel.types.size(); at += count + 1)
    if (accepts(kernel.types.substr(at), call.bindings)) return;
  std::string got;
  for (const Binding& binding : call.bindings) got += letter(binding.dtype);
  fail<DTypeError>(
      call.kernel,
      "types must be one of {} (f: f32, h: f16 or bf16, i: i32, u: u8, by binding), got {}",
      kernel.types, got);
}

}  // namespace

void run_kernel(const KernelCall& call, std::span<std::byte* const> memory) {
  const Kernel& kernel = find_kernel(call.kernel);
  check_call(kernel, call);
  kernel.run(Call(call, memory));
}

}  // namespace rw::reference
