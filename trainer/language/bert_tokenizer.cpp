#include "trainer/language/bert_tokenizer.h"

#include <nlohmann/json.hpp>

#include <array>
#include <limits>

#include "core/base/error.h"
#include "core/files/folder.h"
#include "core/files/json_file.h"
#include "data/base/files.h"

namespace rw {

namespace {

using nlohmann::json;

constexpr const char* bert_reader = "read_bert_tokenizer";

// A file of settings, or an empty object.
json read_json_of(const std::filesystem::path& file) {
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) return json::object();
  try {
    json whole = json::parse(read_file(file, uint64_t{64} << 20));
    check<FileError>(whole.is_object(), bert_reader, "'{}' must hold an object, got {}",
                     file.string(), describe_json(whole));
    return whole;
  } catch (const json::exception& error) {
    fail<FileError>(bert_reader, "'{}' must be a file of a tokenizer: {}", file.string(),
                    error.what());
  }
}

// The tokens of a tokenizer.json, by their ids.
Vocabulary read_word_pieces(const json& file, const std::filesystem::path& path) {
  try {
    const json& model = file.at("model");
    const json type = model.value("type", json("WordPiece"));
    check<FileError>(type == "WordPiece", bert_reader,
                     "'{}' must hold a model of WordPiece, got {}", path.string(),
                     describe_json(type));
    check<FileError>(model.value("continuing_subword_prefix", "##") == "##" &&
                         model.value("unk_token", "[UNK]") == "[UNK]",
                     bert_reader, "'{}' must have pieces that begin with ## and [UNK]",
                     path.string());
    json vocabulary = model.at("vocab");
    for (const json& added : file.value("added_tokens", json::array()))
      vocabulary[added.at("content").get<std::string>()] = added.at("id");
    std::vector<std::string> tokens(vocabulary.size());
    for (const auto& [text, id] : vocabulary.items()) {
      const auto most = static_cast<int64_t>(tokens.size()) - 1;
      tokens[bounded_number<size_t>(id, 0, static_cast<size_t>(most),
                                    fmt::format("the id of {:?} in '{}'", text, path.string()))] =
          text;
    }
    return Vocabulary(std::move(tokens));
  } catch (const json::exception& error) {
    fail<FileError>(bert_reader, "'{}' must be a tokenizer of BERT: {}", path.string(),
                    error.what());
  } catch (const ValueError& error) {
    fail<FileError>(bert_reader, "'{}' must be a vocabulary: {}", path.string(), error.what());
  }
}

// A setting that may be missing or null.
bool flag_of(const json& settings, const char* name, bool usual,
             const std::filesystem::path& folder) {
  const json value = settings.value(name, json());
  check<FileError>(value.is_null() || value.is_boolean(), bert_reader,
                   "{} in '{}' must be true or false, got {}", name, folder.string(),
                   describe_json(value));
  return value.is_null() ? usual : value.get<bool>();
}

}  // namespace

Tokenizer read_bert_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path words = path_in(folder, "vocab.txt"),
                              whole = path_in(folder, "tokenizer.json");
  const json file = read_json_of(whole);
  const json settings = read_json_of(path_in(folder, "tokenizer_config.json"));
  const bool lower = flag_of(settings, "do_lower_case", true, folder);
  check<FileError>(
      flag_of(settings, "strip_accents", lower, folder) == lower &&
          flag_of(settings, "tokenize_chinese_chars", true, folder),
      bert_reader,
      "'{}' must be a tokenizer that strips accents where it makes lower case, and has "
      "ideographs as words; others are not supported",
      folder.string());
  return Tokenizer(file.empty() ? Vocabulary::load(words) : read_word_pieces(file, whole),
                   {.lower_case = lower, .max_input_chars = 100});
}

void write_bert_tokenizer(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  tokenizer.vocabulary().save(folder / "vocab.txt");
  const json settings = {{"tokenizer_class", "BertTokenizer"},
                         {"do_lower_case", tokenizer.options().lower_case}};
  write_file(folder / "tokenizer_config.json", settings.dump(2) + "\n");
}

bool is_of_bert_tokenizer(const std::string& name) {
  constexpr std::array names = {"added_tokens.json", "special_tokens_map.json", "tokenizer.json",
                                "tokenizer_config.json", "vocab.txt"};
  return std::ranges::find(names, name) != names.end();
}

}  // namespace rw
