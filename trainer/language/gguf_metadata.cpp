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

std::optional<bool> flag_or_none(const GgufFile& file, const std::string& key) {
  if (!file.has(prefix + key)) return std::nullopt;
  return file.flag(prefix + key);
}

// Converters write bytes with a sign or without.
std::string bytes_or_none(const GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(prefix + key);
  if (found == file.metadata().end()) return {};
  const auto* list = std::get_if<GgufList>(&found->second);
  if (list && std::holds_alternative<std::vector<int8_t>>(*list)) {
    const auto& bytes = std::get<std::vector<int8_t>>(*list);
    return {bytes.begin(), bytes.end()};
  }
  const auto& bytes = file.list<uint8_t>(prefix + key);
  return {bytes.begin(), bytes.end()};
}

// Added tokens without an embedding have no place in such a file.
void drop_tokens_beyond(GgufTokenizer& made, size_t vocabulary) {
  if (made.tokens.size() <= vocabulary) return;
  made.tokens.resize(vocabulary);
  made.token_type.resize(vocabulary);
  if (!made.scores.empty()) made.scores.resize(vocabulary);
  for (auto* id : {&made.bos_token_id, &made.eos_token_id, &made.eot_token_id, &made.eom_token_id,
                   &made.padding_token_id, &made.unknown_token_id})
    if (*id && static_cast<size_t>(**id) >= vocabulary) id->reset();
  std::erase_if(made.eos_token_ids,
                [&](int32_t id) { return static_cast<size_t>(id) >= vocabulary; });
}

}  // namespace

BpeParts tokenizer_of(const GgufFile& file) {
  check<FileError>(file.has(prefix + "model"), "gguf",
                   "'{}' must have a tokenizer, got none: name another file for it (--tokenizer)",
                   file.path());
  GgufTokenizer found{.model = file.text(prefix + "model"),
                      .tokens = file.list<std::string>(prefix + "tokens"),
                      .token_type = list_or_none<int32_t>(file, "token_type"),
                      .merges = list_or_none<std::string>(file, "merges"),
                      .scores = list_or_none<float>(file, "scores"),
                      .bos_token_id = id_or_none(file, "bos_token_id"),
                      .eos_token_id = id_or_none(file, "eos_token_id"),
                      .eot_token_id = id_or_none(file, "eot_token_id"),
                      .eom_token_id = id_or_none(file, "eom_token_id"),
                      .padding_token_id = id_or_none(file, "padding_token_id"),
                      .unknown_token_id = id_or_none(file, "unknown_token_id"),
                      .eos_token_ids = list_or_none<int32_t>(file, "eos_token_ids"),
                      .add_bos_token = flag_or_none(file, "add_bos_token"),
                      .add_eos_token = flag_or_none(file, "add_eos_token"),
                      .add_space_prefix = flag_or_none(file, "add_space_prefix")};
  if (file.has(prefix + "pre")) found.pre = file.text(prefix + "pre");
  found.remove_extra_whitespaces = flag_or_none(file, "remove_extra_whitespaces").value_or(false);
  found.escape_whitespaces = flag_or_none(file, "escape_whitespaces").value_or(true);
  found.precompiled_charsmap = bytes_or_none(file, "precompiled_charsmap");
  if (file.has("tokenizer.chat_template"))
    found.chat_template = file.text("tokenizer.chat_template");
  return from_gguf(found);
}

GgufMetadata tokenizer_metadata(const BpeParts& parts, int64_t vocabulary) {
  GgufTokenizer made = to_gguf(parts);
  drop_tokens_beyond(made, static_cast<size_t>(vocabulary));
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
  if (made.model == "gpt2") put("pre", made.pre);
  const auto put_flag = [&](const char* key, std::optional<bool> flag) {
    if (flag) put(key, *flag);
  };
  put_flag("add_space_prefix", made.add_space_prefix);
  if (made.model == "t5") {
    put("remove_extra_whitespaces", made.remove_extra_whitespaces);
    put("escape_whitespaces", made.escape_whitespaces);
    put_list("precompiled_charsmap", std::vector<uint8_t>(made.precompiled_charsmap.begin(),
                                                          made.precompiled_charsmap.end()));
  }
  put_list("tokens", std::move(made.tokens));
  put_list("token_type", std::move(made.token_type));
  put_list("merges", std::move(made.merges));
  put_list("scores", std::move(made.scores));
  put_list("eos_token_ids", std::move(made.eos_token_ids));
  put_id("bos_token_id", made.bos_token_id);
  put_id("eos_token_id", made.eos_token_id);
  put_id("eot_token_id", made.eot_token_id);
  put_id("eom_token_id", made.eom_token_id);
  put_id("padding_token_id", made.padding_token_id);
  put_id("unknown_token_id", made.unknown_token_id);
  put_flag("add_bos_token", made.add_bos_token);
  put_flag("add_eos_token", made.add_eos_token);
  if (!made.chat_template.empty())
    metadata.emplace("tokenizer.chat_template", std::move(made.chat_template));
  return metadata;
}

}  // namespace rw
