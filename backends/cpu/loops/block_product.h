// Products of matrices in blocks with many rows.
#pragma once

#include "level.h"

namespace rw::cpu::REWIND_LEVEL {

// As multiply_blocks, for more rows of x than BLOCK_ROWS.
bool multiply_many_rows(const LoopCall& call);

}  // namespace rw::cpu::REWIND_LEVEL
