// Reads the files of a tokenizer that Hugging Face's libraries write.
#pragma once

#include <filesystem>

#include "bpe_parts.h"

namespace rw {

// See BpeTokenizer::load.
BpeParts read_bpe_files(const std::filesystem::path& tokenizer_json_or_folder);

}  // namespace rw
