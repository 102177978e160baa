#include "data/tokenizers/bpe_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/files/folder.h"
#include "core/files/json_file.h"
#include "data/base/base64.h"
#include "data/base/files.h"
#include "data/tokenizers/bpe_model.h"

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

// Calls read(what) unless it is null, or for each of those in a sequence of them.
void for_each_step(const json& what, const char* list,
                   const std::function<void(const json&, const std::string& type)>& read) {
  if (what.is_null()) return;
  const auto type = what.at("type").get<std::string>();
  if (type != "Sequence") return read(what, type);
  for (const json& step : what.at(list)) read(step, step.at("type").get<std::string>());
}

[[noreturn]] void refuse(const char* part, const json& what) {
  fail<FileError>("BpeTokenizer", "the {} must be one that Rewind knows, got {}", part,
                  what.dump(-1, ' ', true).substr(0, 200));
}

class Reader {
 public:
  explicit Reader(const json& file) : file_(file) {}

  BpeParts read() {
    read_normalizer();
    read_pre_tokenizer();
    read_post_processor();
    read_decoder();
    read_model();
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
  void read_normalizer() {
    for_each_step(file_.value("normalizer", json()), "normalizers",
                  [&](const json& step, const std::string& type) {
                    if (type == "Prepend" && step.at("prepend") == space_mark)
                      parts_.space_prefix = SpacePrefix::always;
                    else if (type == "Replace" && step.at("pattern").value("String", "") == " " &&
                             step.at("content") == space_mark)
                      has_space_marks_ = true;
                    else
                      read_normalizer_step(step, type);
                  });
  }

  // A step that comes before spaces are marked.
  void read_normalizer_step(const json& step, const std::string& type) {
    static const std::unordered_map<std::string, Normalization> kinds = {
        {"NFC", Normalization::nfc},
        {"NFD", Normalization::nfd},
        {"NFKC", Normalization::nfkc},
        {"NFKD", Normalization::nfkd},
        {"Replace", Normalization::replace},
        {"Strip", Normalization::strip},
        {"Precompiled", Normalization::charsmap}};
    const auto kind = kinds.find(type);
    if (kind == kinds.end() || has_space_marks_ || parts_.space_prefix != SpacePrefix::none)
      refuse("normalizer", step);
    NormalizerStep read{.kind = kind->second};
    if (read.kind == Normalization::replace) {
      read.literal = !step.at("pattern").contains("Regex");
      read.pattern = step["pattern"].at(read.literal ? "String" : "Regex").get<std::string>();
      read.content = step.at("content").get<std::string>();
    } else if (read.kind == Normalization::strip) {
      read.left = step.at("strip_left").get<bool>();
      read.right = step.at("strip_right").get<bool>();
    } else if (read.kind == Normalization::charsmap) {
      read.pattern = from_base64(step.at("precompiled_charsmap").get<std::string>());
    }
    parts_.normalizers.push_back(std::move(read));
  }

  void read_pre_tokenizer() {
    for_each_step(file_.value("pre_tokenizer", json()), "pretokenizers",
                  [&](const json& step, const std::string& type) {
                    check<FileError>(!has_bytes_, "BpeTokenizer",
                                     "ByteLevel must be the last pre-tokenizer, got {}",
                                     describe_json(step));
                    if (type == "ByteLevel")
                      read_byte_level(step);
                    else if (type == "Metaspace" && step.at("replacement") == space_mark)
                      read_metaspace(step);
                    else if (type == "Digits")
                      parts_.splits.push_back(
                          {step.at("individual_digits").get<bool>() ? R"(\p{N})" : R"(\p{N}+)"});
                    else if (type == "Split")
                      read_split(step);
                    else if (type == "WhitespaceSplit")
                      parts_.splits.push_back({R"(\s+)", SplitBehavior::removed});
                    else
                      refuse("pre-tokenizer", step);
                  });
  }

  void read_byte_level(const json& step) {
    has_bytes_ = true;
    if (step.value("add_prefix_space", false)) {
      check<FileError>(parts_.splits.empty(), "BpeTokenizer",
                       "add_prefix_space must be that of the only pre-tokenizer, got {} before it",
                       parts_.splits.size());
      parts_.space_prefix = SpacePrefix::unless_space;
    }
    if (step.value("use_regex", true)) parts_.splits.push_back({gpt2_pattern});
  }

  void read_metaspace(const json& step) {
    check<FileError>(!has_space_marks_, "BpeTokenizer",
                     "Metaspace must be the first to replace spaces, got another step before it");
    parts_.early_splits = std::exchange(parts_.splits, {});
    has_space_marks_ = true;
    const auto scheme = step.value("prepend_scheme", "always");
    if (scheme == "first")
      parts_.space_prefix = SpacePrefix::first_unless_space;
    else if (scheme == "always")
      parts_.space_prefix = SpacePrefix::unless_space;
    else if (scheme != "never")
      refuse("pre-tokenizer", step);
    if (step.value("split", true))
      parts_.splits.push_back(
          {std::string(space_mark), SplitBehavior::merged_with_next, false, true});
  }

  void read_split(const json& step) {
    static const std::unordered_map<std::string, SplitBehavior> behaviors = {
        {"Isolated", SplitBehavior::isolated},
        {"Removed", SplitBehavior::removed},
        {"MergedWithPrevious", SplitBehavior::merged_with_previous},
        {"MergedWithNext", SplitBehavior::merged_with_next}};
    const auto behavior = behaviors.find(step.at("behavior").get<std::string>());
    if (behavior == behaviors.end()) refuse("pre-tokenizer", step);
    const json& pattern = step.at("pattern");
    const bool literal = !pattern.contains("Regex");
    parts_.splits.push_back({pattern.at(literal ? "String" : "Regex").get<std::string>(),
                             behavior->second, step.value("invert", false), literal});
  }

  void read_post_processor() {
    for_each_step(file_.value("post_processor", json()), "processors",
                  [&](const json& step, const std::string& type) {
                    if (type == "ByteLevel") return;  // it changes offsets only
                    if (parts_.add_bos || !template_end_.empty()) refuse("post-processor", step);
                    if (type == "TemplateProcessing")
                      read_template_of(step);
                    else if (type == "BertProcessing" || type == "RobertaProcessing")
                      template_begin_ = step.at("cls").at(0).get<std::string>(),
                      template_end_ = {step.at("sep").at(0).get<std::string>()};
                    else
                      refuse("post-processor", step);
                    parts_.add_bos = template_begin_.has_value();
                  });
  }

  // At most one token before a text, and any behind it.
  void read_template_of(const json& step) {
    bool is_behind = false;
    for (const json& part : step.at("single")) {
      if (part.contains("Sequence")) {
        if (std::exchange(is_behind, true)) refuse("post-processor", step);
        continue;
      }
      const auto text = part.at("SpecialToken").at("id").get<std::string>();
      if (is_behind)
        template_end_.push_back(text);
      else if (template_begin_)
        refuse("post-processor", step);
      else
        template_begin_ = text;
    }
    if (!is_behind) refuse("post-processor", step);
  }

  // Nothing is kept of the decoder: its work follows from the rest.
  void read_decoder() {
    for_each_step(file_.value("decoder", json()), "decoders",
                  [&](const json& step, const std::string& type) {
                    static const std::set<std::string> known = {
                        "ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"};
                    if (!known.contains(type)) refuse("decoder", step);
                    parts_.strips_first =
                        parts_.strips_first ||
                        (type == "Metaspace" && step.value("prepend_scheme", "always") != "never");
                  });
  }

  void read_model() {
    const json& model = file_.at("model");
    const json type = model.value("type", json("BPE"));
    check<FileError>(type == "BPE" || type == "Unigram", "BpeTokenizer",
                     "the model must be BPE or Unigram, got {}", describe_json(type));
    if (type == "Unigram")
      read_unigram(model);
    else
      read_merges(model);
    if (template_begin_) parts_.bos = id_of(*template_begin_);
    for (const std::string& text : template_end_) parts_.suffix.push_back(id_of(text));
  }

  void read_unigram(const json& model) {
    parts_.byte_level = has_bytes_;
    check<FileError>(has_bytes_ != has_space_marks_, "BpeTokenizer",
                     "words must be either bytes (ByteLevel) or characters with U+2581 for spaces, "
                     "got {}",
                     has_bytes_ ? "both" : "neither");
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
    parts_.byte_level = has_bytes_;
    const bool falls_back = model.value("byte_fallback", false),
               prepends = parts_.space_prefix == SpacePrefix::always;
    check<FileError>(
        has_bytes_ ? !falls_back && !has_space_marks_ && !prepends : falls_back && has_space_marks_,
        "BpeTokenizer",
        "words must be either bytes (ByteLevel) or characters with byte_fallback and "
        "U+2581 for spaces, got {}",
        has_bytes_ ? "both" : "neither");
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
          ids_.emplace(text, at).first->second == at && (token.text.empty() || token.text == text),
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
  bool has_bytes_ = false, has_space_marks_ = false;
  std::optional<std::string> template_begin_;  // the tokens around a text
  std::vector<std::string> template_end_;
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

BpeParts read_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  const json whole = parse_file(path_in(folder, file.filename()));
  Reader reader(whole);
  BpeParts parts = reader.read();
  const json config = read_settings(path_in(folder, "tokenizer_config.json")),
             specials = read_settings(path_in(folder, "special_tokens_map.json")),
             generation = read_settings(path_in(folder, "generation_config.json"));
  const auto special = [&](const char* name) {
    const auto found = reader.special(config, name);
    return found ? found : reader.special(specials, name);
  };
  if (!parts.bos) parts.bos = special("bos_token");
  parts.pad = special("pad_token");
  if (const auto eos = special("eos_token")) parts.eos.push_back(*eos);
  const auto add_eos = [&](const json& value) {
    const auto id = bounded_number<int32_t>(value, 0, static_cast<int64_t>(parts.tokens.size()) - 1,
                                            "eos_token_id of generation_config.json");
    if (std::ranges::find(parts.eos, id) == parts.eos.end()) parts.eos.push_back(id);
  };
  const json ends = generation.value("eos_token_id", json());
  if (ends.is_array())
    for (const json& end : ends) add_eos(end);
  else if (!ends.is_null())
    add_eos(ends);
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
