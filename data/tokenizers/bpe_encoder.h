// Cuts texts into the tokens of a BpeModel.
#pragma once

#include <string_view>
#include <vector>

#include "bpe_model.h"

namespace rw {

// Appends the tokens of a whole text, which must be UTF-8. With `special_tokens`, texts of special
// tokens are read as these.
void append_tokens(const BpeModel& model, std::string_view text, bool special_tokens,
                   std::vector<int32_t>& out);

}  // namespace rw
