// Writes the files of a tokenizer that Hugging Face's libraries read.
#pragma once

#include <filesystem>

#include "bpe_parts.h"

namespace rw {

// See BpeTokenizer::save. The parts must be those of a BpeTokenizer.
void write_bpe_files(const std::filesystem::path& folder, const BpeParts& parts);

}  // namespace rw
