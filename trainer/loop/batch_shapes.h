// The sizes of batches of sequences.
#pragma once

#include <functional>
#include <vector>

#include "../../planner/forecast/program.h"

namespace rw {

// The size of the first batch, and those of the largest among the first `total` ones; shape_of(i)
// is that of batch i. Ranks share them out: of those of this one.
std::vector<BatchShape> largest_shapes(int64_t total,
                                       const std::function<BatchShape(int64_t)>& shape_of);

}  // namespace rw
