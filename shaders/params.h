// Push-constant structs, written once for C++ and GLSL: the files of params/, here for C++. A
// kernel includes only the file that defines its struct, so a change recompiles that family alone.
// A struct has at most 124 bytes. It begins with `offset`, in elements, one per binding in the
// kernel's order: the accessors that the shader generator writes add it, so any view can be bound.
// Kernels of a family, such as a kernel and its gradient, share a struct. Each reads what concerns
// it, and the offsets of the kernel with the most bindings have room for all.
#pragma once

#include <cstdint>

namespace rw::kernels {

using uint = uint32_t;

#include "params/attention.h"
#include "params/chain.h"
#include "params/common.h"
#include "params/elementwise.h"
#include "params/image.h"
#include "params/index.h"
#include "params/loss.h"
#include "params/matrix.h"
#include "params/norm.h"
#include "params/optim.h"
#include "params/quantize.h"
#include "params/recurrent.h"
#include "params/reduce.h"

}  // namespace rw::kernels
