#include "data/tokenizers/bpe_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/files/folder.h"
#include "core/files/json_file.h"
#include "data/base/files.h"
#include "data/tokenizers/bpe_steps.h"

namespace rw {

namespace {

using nlohmann::json;

constexpr uint64_t most_file_bytes = uint64_t{256} << 20;  // several times the largest in use
constexpr int most_depth = 64;                             // the same of lists in lists

// Parses a file, in which no object may have a name twice. The depth is limited, since copies of
// JSON values are recursive.
json parse_file(const std::filesystem::path& file) {
  const auto bytes = read_file(file, most_file_bytes);
  std::vector<std::set<std::string>> open;  // the names of each object that is open
  const auto check_names = [&](int depth, json::parse_event_t event, json& value) {
    check<FileError>(depth < most_depth, "BpeTokenizer",
                     "'{}' must have lists and objects in fewer than {} others", file.string(),
                     most_depth);
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key)
      check<FileError>(open.back().insert(value.get<std::string>()).second, "BpeTokenizer",
                       "'{}' must have each name once, got {:?} again", file.string(),
                       value.get<std::string>());
    return true;
  };
  return json::parse(bytes, check_names);
}

class Reader {
 public:
  explicit Reader(const json& file) : file_(file) {}

  BpeParts read() {
    kinds_ = read_bpe_steps(file_, parts_);
    check<FileError>(!kinds_.bytes || !parts_.metaspace, "BpeTokenizer",
                     "words must be either bytes (ByteLevel) or characters with U+2581 for spaces "
                     "(Metaspace), got both");
    parts_.byte_level = kinds_.bytes;
    const json& model = file_.at("model");
    const json type = model.value("type", json("BPE"));
    check<FileError>(type == "BPE" || type == "Unigram", "BpeTokenizer",
                     "the model must be BPE or Unigram, got {}", describe_json(type));
    if (type == "Unigram")
      read_unigram(model);
    else
      read_merges(model);
    return std::move(parts_);
  }

  // The id of a token that a configuration names: as a text, as {"content": text}, or not at all.
  std::optional<int32_t> special(const json& config, const char* name) const {
    const json value = config.value(name, json());
    const json& text = value.is_object() ? value.at("content") : value;
    if (text.is_null()) return std::nullopt;
    const auto found = ids_.find(text.get<std::string>());
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  void read_unigram(const json& model) {
    parts_.byte_fallback = model.value("byte_fallback", false);
    Vocabulary vocabulary;
    for (const json& piece : model.at("vocab")) {
      vocabulary.emplace_back(piece.at(0).get<std::string>(), vocabulary.size());
      parts_.scores.push_back(piece.at(1).get<double>());
    }
    check<FileError>(!vocabulary.empty(), "BpeTokenizer",
                     "a unigram model must have pieces, got 0");
    const json unknown = model.value("unk_id", json());
    if (!unknown.is_null())
      parts_.unknown = bounded_number<int32_t>(
          unknown, 0, static_cast<int64_t>(vocabulary.size()) - 1, "unk_id");
    read_tokens(vocabulary,
                parts_.unknown ? json(vocabulary[size_t(*parts_.unknown)].first) : json());
  }

  void read_merges(const json& model) {
    for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const json value = model.value(name, json());
      check<FileError>(value.is_null() || value == "" || value == 0, "BpeTokenizer",
                       "the model must have no {}, got {}", name, describe_json(value));
    }
    const bool falls_back = model.value("byte_fallback", false);
    check<FileError>(kinds_.bytes ? !falls_back : falls_back && kinds_.space_marks, "BpeTokenizer",
                     "words must be either bytes (ByteLevel) or characters with byte_fallback and "
                     "U+2581 for spaces, got {}",
                     kinds_.bytes ? "both" : "neither");
    parts_.ignore_merges = model.value("ignore_merges", false);
    Vocabulary vocabulary;
    for (const auto& [text, id] : model.at("vocab").items()) vocabulary.emplace_back(text, id);
    read_tokens(vocabulary, model.value("unk_token", json()));
    for (const json& merge : model.at("merges")) parts_.merges.push_back(read_merge(merge));
  }

  // Texts and ids. Ids have few gaps: memory is taken only for what a file has.
  using Vocabulary = std::vector<std::pair<std::string, json>>;

  void read_tokens(const Vocabulary& vocabulary, const json& unknown) {
    constexpr size_t most_gaps = size_t{1} << 18;
    const json added = file_.value("added_tokens", json::array());
    const auto most = static_cast<int64_t>(vocabulary.size() + added.size() + most_gaps);
    const auto place = [&](const std::string& text, const json& id) -> BpeToken& {
      const auto at = bounded_number<int32_t>(id, 0, most - 1, fmt::format("the id of {:?}", text));
      if (static_cast<size_t>(at) >= parts_.tokens.size())
        parts_.tokens.resize(static_cast<size_t>(at) + 1, {"", TokenType::unused});
      BpeToken& token = parts_.tokens[static_cast<size_t>(at)];
      check<FileError>(
          ids_.emplace(text, at).first->second == at && (token.is_gap() || token.text == text),
          "BpeTokenizer", "tokens and ids must differ, got {:?} and {:?} with the id {}",
          token.text, text, at);
      token.text = text;
      token.type = TokenType::normal;
      return token;
    };
    const bool has_byte_tokens = parts_.scores.empty() ? !parts_.byte_level : parts_.byte_fallback;
    for (const auto& [text, id] : vocabulary) {
      BpeToken& token = place(text, id);
      if (has_byte_tokens && text.size() == 6 && text.starts_with("<0x"))
        token.type = TokenType::byte;
    }
    // As in the library (0.23), an added token has the id that it has in the vocabulary, or the
    // next one behind the vocabulary's size, whatever id its entry gives.
    auto next = static_cast<int32_t>(vocabulary.size());
    for (const json& entry : added) {
      const auto text = entry.at("content").get<std::string>();
      const auto known = ids_.find(text);
      BpeToken& token = place(text, known == ids_.end() ? next++ : known->second);
      token.type = !entry.value("special", false) ? TokenType::user_defined
                   : unknown == text              ? TokenType::unknown
                                                  : TokenType::control;
      token.normalized = entry.value("normalized", true);
      token.lstrip = entry.value("lstrip", false);
      token.rstrip = entry.value("rstrip", false);
      token.single_word = entry.value("single_word", false);
    }
  }

  int32_t id_of(const std::string& text) const {
    const auto found = ids_.find(text);
    check<FileError>(found != ids_.end(), "BpeTokenizer", "{:?} must be a token, it is none", text);
    return found->second;
  }

  // The older form is "a b", the newer one ["a", "b"].
  std::pair<int32_t, int32_t> read_merge(const json& merge) const {
    if (!merge.is_string()) {
      check<FileError>(merge.size() == 2, "BpeTokenizer", "a merge must be of two tokens, got {}",
                       describe_json(merge));
      return {id_of(merge.at(0).get<std::string>()), id_of(merge.at(1).get<std::string>())};
    }
    const auto text = merge.get<std::string>();
    const size_t space = text.find(' ');
    check<FileError>(space != text.npos && text.find(' ', space + 1) == text.npos, "BpeTokenizer",
                     "a merge must be two tokens with a space between them, got {:?}", text);
    return {id_of(text.substr(0, space)), id_of(text.substr(space + 1))};
  }

  const json& file_;
  BpeParts parts_;
  std::unordered_map<std::string, int32_t> ids_;
  WordKinds kinds_;
};

bool is_there(const std::filesystem::path& file) {
  std::error_code unknown;
  return std::filesystem::exists(file, unknown);
}

// A file of settings beside tokenizer.json, or an empty object.
json read_settings(const std::filesystem::path& file) {
  json settings = is_there(file) ? parse_file(file) : json::object();
  check<FileError>(settings.is_object(), "BpeTokenizer", "'{}' must hold an object, got {}",
                   file.string(), describe_json(settings));
  return settings;
}

// The text itself, or the one named "default" of several.
std::string read_template(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  for (const json& entry : value)
    if (entry.at("name") == "default") return entry.at("template").get<std::string>();
  return {};
}

// The settings of transformers' tokenizer: the older special_tokens_map.json counts where
// tokenizer_config.json does not list the added tokens.
json read_tokenizer_settings(const std::filesystem::path& folder) {
  json settings = read_settings(path_in(folder, "tokenizer_config.json"));
  if (!settings.contains("added_tokens_decoder"))
    settings.update(read_settings(path_in(folder, "special_tokens_map.json")));
  return settings;
}

int64_t number_in(const std::string& text) {
  int64_t number = -1;
  const char* const end = text.data() + text.size();
  const auto [read, fault] = std::from_chars(text.data(), end, number);
  check<FileError>(fault == std::errc() && read == end && number >= 0, "BpeTokenizer",
                   "the names in added_tokens_decoder must be ids, got {:?}", text);
  return number;
}

// Adds to the added_tokens of a tokenizer.json those that only the settings have, in transformers'
// order (TokenizersBackend of version 5.24): those of added_tokens_decoder by their ids, then
// tokens with a role, then others. An entry of added_tokens_decoder replaces that of its text.
void add_tokens_of_settings(json& whole, const json& settings) {
  json& added = whole["added_tokens"];
  if (added.is_null()) added = json::array();
  std::unordered_map<std::string, size_t> places;
  for (const json& entry : added)
    places.emplace(entry.at("content").get<std::string>(), places.size());
  const auto add = [&](json entry, bool replaces) {
    if (!entry.contains("normalized")) entry["normalized"] = !entry.value("special", false);
    const auto [place, is_new] =
        places.emplace(entry.at("content").get<std::string>(), added.size());
    if (is_new)
      added.push_back(std::move(entry));
    else if (replaces)
      added[place->second] = std::move(entry);
  };
  std::map<int64_t, json> by_id;
  const json decoder = settings.value("added_tokens_decoder", json::object());
  for (const auto& [id, entry] : decoder.items()) by_id[number_in(id)] = entry;
  for (auto& [id, entry] : by_id) add(std::move(entry), true);
  const auto add_special = [&](const json& value) {
    if (!value.is_string() && !(value.is_object() && value.contains("content"))) return;
    json entry = value.is_object() ? value : json{{"content", value}};
    entry["special"] = true;
    add(std::move(entry), false);
  };
  constexpr std::array roles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                "pad_token", "cls_token", "mask_token"};
  for (const char* role : roles) add_special(settings.value(role, json()));
  for (const auto& [name, value] : settings.items())
    if (name.ends_with("_token")) add_special(value);
  for (const char* list : {"extra_special_tokens", "additional_special_tokens"})
    for (const json& value : settings.value(list, json::array())) add_special(value);
}

// The ids that end a generated text, as in transformers those of generation_config.json, else those
// of config.json.
std::vector<int32_t> read_ends(const std::filesystem::path& folder, size_t tokens) {
  std::vector<int32_t> ends;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const json given = read_settings(path_in(folder, name)).value("eos_token_id", json());
    if (given.is_null()) continue;
    for (const json& end : given.is_array() ? given : json::array({given})) {
      const auto id = bounded_number<int32_t>(end, -1, static_cast<int64_t>(tokens) - 1,
                                              fmt::format("eos_token_id of {}", name));
      if (id >= 0 && std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
    }
    if (!ends.empty()) break;
  }
  return ends;
}

BpeParts read_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  json whole = parse_file(path_in(folder, file.filename()));
  const json config = read_tokenizer_settings(folder);
  add_tokens_of_settings(whole, config);
  Reader reader(whole);
  BpeParts parts = reader.read();
  if (!parts.bos) parts.bos = reader.special(config, "bos_token");
  parts.pad = reader.special(config, "pad_token");
  parts.eos_token = reader.special(config, "eos_token");
  parts.eos = read_ends(folder, parts.tokens.size());
  if (parts.eos.empty() && parts.eos_token) parts.eos = {*parts.eos_token};
  if (const auto jinja = path_in(folder, "chat_template.jinja"); is_there(jinja)) {
    const auto text = read_file(jinja, most_file_bytes);
    parts.chat_template.assign(text.begin(), text.end());
  } else {
    parts.chat_template = read_template(config.value("chat_template", json()));
  }
  return parts;
}

}  // namespace

BpeParts read_bpe_files(const std::filesystem::path& tokenizer_json_or_folder) {
  std::error_code unknown;
  const bool is_folder = std::filesystem::is_directory(tokenizer_json_or_folder, unknown);
  const auto file =
      is_folder ? tokenizer_json_or_folder / "tokenizer.json" : tokenizer_json_or_folder;
  try {
    return read_folder(file);
  } catch (const json::exception& error) {
    fail<FileError>("BpeTokenizer",
                    "'{}' and what lies beside it must be files of a tokenizer, got {}",
                    file.string(), error.what());
  }
}

}  // namespace rw
