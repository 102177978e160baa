// Finds the loop of a kernel call, checks the call against the kernel's row, and runs it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "../../core/backend/backend.h"

namespace rw::reference {

// The kernels, in each combination of dtypes.
std::vector<KernelVariant> kernel_variants();
// Throws where the call is none that its kernel takes: parameters, bindings, dtypes.
void check_call(const KernelCall& call);

// `memory`: where the bytes of each binding lie.
void run_kernel(const KernelCall& call, std::span<std::byte* const> memory);

}  // namespace rw::reference
