// The sizes of batches of texts.
#pragma once

#include <vector>

#include "apps/common/training.h"
#include "rewind/data/text_loader.h"

namespace rw {

// The size of the first batch, and those of the largest among the first `steps` ones (0: of one
// epoch).
std::vector<BatchShape> largest_shapes(TextLoader loader, int64_t steps);

}  // namespace rw
