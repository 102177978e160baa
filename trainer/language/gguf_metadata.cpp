#include "trainer/language/gguf_metadata.h"

#include <limits>

#include "data/tokenizers/gguf_tokenizer.h"

namespace rw {

namespace {

const std::string prefix = "tokenizer.ggml.";

template <class T>
std::vector<T> list_or_none(const GgufFile& file, const std::string& key) {
  return file.has(prefix + key) ? file.list<T>(prefix + key) : std::vector<T>();
}

std::optional<int32_t> id_or_none(const GgufFile& file, const std::string& key) {
  if (!file.has(prefix + key)) return std::nullopt;
  return static_cast<int32_t>(file.integer(prefix + key, 0, std::numeric_limits<int32_t>::max()));
}

}  // namespace

BpeParts tokenizer_of(const GgufFile& file) {
  check<FileError>(file.has(prefix + "model"), "gguf",
                   "'{}' must have a tokenizer, got none: name another file for it", file.path());
  GgufTokenizer found{.model = file.text(prefix + "model"),
                      .tokens = file.list<std::string>(prefix + "tokens"),
                      .token_type = list_or_none<int32_t>(file, "token_type"),
                      .merges = list_or_none<std::string>(file, "merges"),
                      .scores = list_or_none<float>(file, "scores"),
                      .bos_token_id = id_or_none(file, "bos_token_id"),
                      .eos_token_id = id_or_none(file, "eos_token_id"),
                      .eot_token_id = id_or_none(file, "eot_token_id"),
                      .padding_token_id = id_or_none(file, "padding_token_id")};
  if (file.has(prefix + "pre")) found.pre = file.text(prefix + "pre");
  if (file.has(prefix + "add_bos_token")) found.add_bos_token = file.flag(prefix + "add_bos_token");
  if (file.has(prefix + "add_space_prefix"))
    found.add_space_prefix = file.flag(prefix + "add_space_prefix");
  if (file.has("tokenizer.chat_template"))
    found.chat_template = file.text("tokenizer.chat_template");
  return from_gguf(found);
}

GgufMetadata tokenizer_metadata(const BpeParts& parts, int64_t vocabulary) {
  GgufTokenizer made = to_gguf(parts);
  for (auto id = static_cast<int64_t>(made.tokens.size()); id < vocabulary; ++id) {
    made.tokens.push_back("[PAD" + std::to_string(id) + "]");
    made.token_type.push_back(static_cast<int32_t>(TokenType::unused));
    if (!made.scores.empty()) made.scores.push_back(0);
  }
  GgufMetadata metadata;
  const auto put = [&](const char* key, GgufValue value) {
    metadata.emplace(prefix + key, std::move(value));
  };
  const auto put_list = [&](const char* key, auto list) {
    if (!list.empty()) put(key, GgufList(std::move(list)));
  };
  const auto put_id = [&](const char* key, std::optional<int32_t> id) {
    if (id) put(key, static_cast<uint32_t>(*id));
  };
  put("model", made.model);
  if (made.model == "gpt2")
    put("pre", made.pre);
  else
    put("add_space_prefix", made.add_space_prefix);
  put_list("tokens", std::move(made.tokens));
  put_list("token_type", std::move(made.token_type));
  put_list("merges", std::move(made.merges));
  put_list("scores", std::move(made.scores));
  put_id("bos_token_id", made.bos_token_id);
  put_id("eos_token_id", made.eos_token_id);
  put_id("eot_token_id", made.eot_token_id);
  put_id("padding_token_id", made.padding_token_id);
  if (made.add_bos_token) put("add_bos_token", *made.add_bos_token);
  if (!made.chat_template.empty())
    metadata.emplace("tokenizer.chat_template", std::move(made.chat_template));
  return metadata;
}

}  // namespace rw
