// BERT's tokenizer in the folders of Hugging Face: vocab.txt or tokenizer.json, and
// tokenizer_config.json.
#pragma once

#include <filesystem>

#include "../../data/text/tokenizer.h"

namespace rw {

// The tokenizer that transformers' BertTokenizer opens there. Without tokenizer_config.json, texts
// become lower case. FileError for what is malformed, and for settings that Tokenizer does not
// have: accents that stay in lower case, ideographs in words.
Tokenizer read_bert_tokenizer(const std::filesystem::path& folder);
// Writes vocab.txt and tokenizer_config.json, which transformers opens. FileError.
void write_bert_tokenizer(const std::filesystem::path& folder, const Tokenizer& tokenizer);
// Whether a file of a folder belongs to a tokenizer, of which write_bert_tokenizer() makes others.
bool is_of_bert_tokenizer(const std::string& name);

}  // namespace rw
