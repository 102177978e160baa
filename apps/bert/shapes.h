// The sizes of batches of texts.
#pragma once

#include <vector>

#include "../../data/text/text_loader.h"
#include "../../trainer/loop/model_steps.h"

namespace rw {

// The size of the first batch, and those of the largest among the first `steps` ones (0: of one
// epoch).
std::vector<BatchShape> largest_shapes(TextLoader loader, int64_t steps);

}  // namespace rw
