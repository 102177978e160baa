// Sums and other reductions on a device, in as many levels as they need: a thread, a team or a
// workgroup reduces each chunk, and their results, in scratch memory, are reduced again.
#pragma once

#include "../device/caps.h"
#include "passes.h"

namespace rw::vulkan {

void add_reduce(Passes& passes, const Caps& caps, const KernelCall& call);
void add_argreduce(Passes& passes, const Caps& caps, const KernelCall& call);

// Computes y = the sum over the first axis of x [count, inner], of f32; y begins at an offset in
// elements.
void add_sum(Passes& passes, const Caps& caps, uint32_t count, uint32_t inner, const Operand& x,
             const Operand& y, uint32_t offset);

// batch_norm_stats, batch_norm_grad_stats and layer_norm_grad_stats.
void add_batch_norm_stats(Passes& passes, const Caps& caps, const KernelCall& call);
void add_batch_norm_grad_stats(Passes& passes, const Caps& caps, const KernelCall& call);
void add_layer_norm_grad_stats(Passes& passes, const Caps& caps, const KernelCall& call);

}  // namespace rw::vulkan
