// Finds the loop of a kernel call, checks the call against the kernel's row, and runs it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "../../core/backend/backend.h"

namespace rw::reference {

// Returns the kernels, in each combination of dtypes.
std::vector<KernelVariant> kernel_variants();
std::vector<std::string_view> kernel_names();  // valid forever

// Returns the kernel of this name, which is valid forever; throws if there is none.
struct Kernel;
const Kernel& find_kernel(std::string_view name);
// Throws unless the kernel takes the call: parameters, bindings, dtypes.
void check_call(const Kernel& kernel, const KernelCall& call);
// `memory` has the addresses of each binding of the call, which must be checked.
void run_loop(const Kernel& kernel, const KernelCall& call, std::span<std::byte* const> memory);

// Finds, checks and runs the kernel of a call.
void run_kernel(const KernelCall& call, std::span<std::byte* const> memory);

}  // namespace rw::reference
