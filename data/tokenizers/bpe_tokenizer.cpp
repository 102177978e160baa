#include "data/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "data/base/unicode.h"
#include "data/tokenizers/bpe_encoder.h"
#include "data/tokenizers/bpe_reader.h"
#include "data/tokenizers/bpe_writer.h"

namespace rw {

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : model_(std::make_shared<const BpeModel>(std::move(parts))) {}

BpeTokenizer BpeTokenizer::load(const std::filesystem::path& tokenizer_json_or_folder) {
  return BpeTokenizer(read_bpe_files(tokenizer_json_or_folder));
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
  write_bpe_files(folder, parts());
}

const BpeParts& BpeTokenizer::parts() const {
  return model_->parts;
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool special_tokens, bool bos,
                                          bool eos) const {
  check(text.size() <= std::numeric_limits<int32_t>::max(), "BpeTokenizer",
        "a text must have less than 2 GiB, got {} bytes", text.size());
  std::vector<int32_t> ids;
  if (bos && parts().add_bos && parts().bos) {
    ids.push_back(*parts().bos);
    ids.insert(ids.end(), parts().prefix.begin(), parts().prefix.end());
  }
  if (is_valid_utf8(text))
    append_tokens(*model_, text, special_tokens, ids);
  else
    append_tokens(*model_, to_valid_utf8(text), special_tokens, ids);
  if (eos) ids.insert(ids.end(), parts().suffix.begin(), parts().suffix.end());
  return ids;
}

void BpeTokenizer::check_id(int64_t id) const {
  check(id >= 0 && id < size(), "BpeTokenizer", "ids must be in [0, {}), got {}", size(), id);
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  bool is_first = true;
  for (const int32_t id : ids) {
    if ((is_special(id) && skip_special) || parts().tokens[static_cast<size_t>(id)].is_gap())
      continue;
    if (std::exchange(is_first, false) && parts().strip == SpaceStrip::all)
      text += model_->bytes_of(model_->token(id), "");
    else
      text += model_->bytes[static_cast<size_t>(id)];
  }
  if (parts().strip == SpaceStrip::one && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

const std::string& BpeTokenizer::token(int64_t id) const {
  check_id(id);
  return parts().tokens[static_cast<size_t>(id)].text;
}

const std::string& BpeTokenizer::bytes(int64_t id) const {
  check_id(id);
  return model_->bytes[static_cast<size_t>(id)];
}

std::optional<int32_t> BpeTokenizer::id(std::string_view token) const {
  const auto found = model_->ids.find(token);
  return found == model_->ids.end() ? std::nullopt : std::optional(found->second);
}

bool BpeTokenizer::is_special(int64_t id) const {
  check_id(id);
  return rw::is_special(parts().tokens[static_cast<size_t>(id)].type);
}

bool BpeTokenizer::is_eos(int32_t id) const {
  return std::ranges::find(parts().eos, id) != parts().eos.end();
}

std::string StreamingDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.bytes(id);
  const size_t whole = pending_.size() - incomplete_utf8(pending_);
  const std::string text = to_valid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamingDecoder::finish() {
  return to_valid_utf8(std::exchange(pending_, {}));
}

}  // namespace rw
