#include "data/tokenizers/bpe_steps.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/files/json_file.h"
#include "data/base/base64.h"

namespace rw {

namespace {

using nlohmann::json;

// Calls read(what) unless it is null, or for each of those in a sequence of them, which may hold
// others.
void for_each_step(const json& what, const char* list,
                   const std::function<void(const json&, const std::string& type)>& read) {
  if (what.is_null()) return;
  const auto type = what.at("type").get<std::string>();
  if (type != "Sequence") return read(what, type);
  for (const json& step : what.at(list)) for_each_step(step, list, read);
}

[[noreturn]] void refuse(const char* part, const json& what) {
  fail<FileError>("BpeTokenizer", "the {} must be one that Rewind knows, got {}", part,
                  what.dump(-1, ' ', true).substr(0, 200));
}

class StepsReader {
 public:
  StepsReader(const json& file, BpeParts& parts) : file_(file), parts_(parts) {}

  WordKinds read() {
    for_each_step(file_.value("normalizer", json()), "normalizers",
                  [&](const json& step, const std::string& type) { read_normalizer(step, type); });
    read_pre_tokenizer();
    read_post_processor();
    read_decoder();
    return kinds_;
  }

 private:
  // BERT's changes follow each other as if each were a normalizer.
  void read_bert_normalizer(const json& step) {
    const auto is_on = [&](const char* name, bool otherwise) {
      const json value = step.value(name, json());
      return value.is_null() ? otherwise : value.get<bool>();
    };
    const bool lowers = is_on("lowercase", true);
    const auto add_if = [&](bool wanted, Normalization kind) {
      if (wanted) parts_.normalizers.push_back({.kind = kind});
    };
    add_if(is_on("clean_text", true), Normalization::bert_clean);
    add_if(is_on("handle_chinese_chars", true), Normalization::bert_ideographs);
    add_if(is_on("strip_accents", lowers), Normalization::bert_accents);
    add_if(lowers, Normalization::lowercase);
  }

  void read_normalizer(const json& step, const std::string& type) {
    if (type == "BertNormalizer") return read_bert_normalizer(step);
    using Name = std::pair<std::string_view, Normalization>;
    const auto* kind = std::ranges::find(normalizer_names, type, &Name::first);
    if (kind == std::end(normalizer_names)) refuse("normalizer", step);
    NormalizerStep read{.kind = kind->second};
    if (read.kind == Normalization::replace) {
      read.literal = !step.at("pattern").contains("Regex");
      read.pattern = step["pattern"].at(read.literal ? "String" : "Regex").get<std::string>();
      read.content = step.at("content").get<std::string>();
    } else if (read.kind == Normalization::prepend) {
      read.content = step.at("prepend").get<std::string>();
    } else if (read.kind == Normalization::strip) {
      read.left = step.at("strip_left").get<bool>();
      read.right = step.at("strip_right").get<bool>();
    } else if (read.kind == Normalization::charsmap) {
      read.pattern = from_base64(step.at("precompiled_charsmap").get<std::string>());
    }
    kinds_.space_marks = kinds_.space_marks || read == mark_spaces;
    parts_.normalizers.push_back(std::move(read));
  }

  void read_pre_tokenizer() {
    for_each_step(file_.value("pre_tokenizer", json()), "pretokenizers",
                  [&](const json& step, const std::string& type) {
                    check<FileError>(!kinds_.bytes, "BpeTokenizer",
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
                    else if (type == "WhitespaceSplit" || type == "BertPreTokenizer")
                      parts_.splits.push_back({R"(\s+)", SplitBehavior::removed});
                    else if (type == "Whitespace")
                      parts_.splits.push_back({R"(\w+|[^\w\s]+)", SplitBehavior::removed, true});
                    else if (type != "Punctuation")
                      refuse("pre-tokenizer", step);
                    if (type == "Punctuation" || type == "BertPreTokenizer") read_punctuation(step);
                  });
  }

  void read_punctuation(const json& step) {
    parts_.splits.push_back({R"([[\p{P}&&\p{age=8.0}]!-/:-@\[-`{-~])",
                             behavior_of(step.value("behavior", "Isolated"))});
  }

  void read_byte_level(const json& step) {
    kinds_.bytes = true;
    if (step.value("add_prefix_space", false)) {
      check<FileError>(parts_.splits.empty(), "BpeTokenizer",
                       "add_prefix_space must be that of the only pre-tokenizer, got {} before it",
                       parts_.splits.size());
      parts_.space_prefix = SpacePrefix::unless_space;
    }
    if (step.value("use_regex", true)) parts_.splits.push_back({gpt2_pattern});
  }

  void read_metaspace(const json& step) {
    check<FileError>(!parts_.metaspace, "BpeTokenizer",
                     "there must be one Metaspace at most, got another before it");
    parts_.early_splits = std::exchange(parts_.splits, {});
    kinds_.space_marks = parts_.metaspace = true;
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

  static SplitBehavior behavior_of(const std::string& name) {
    using Name = std::pair<std::string_view, SplitBehavior>;
    const auto* behavior = std::ranges::find(split_behavior_names, name, &Name::first);
    if (behavior == std::end(split_behavior_names)) refuse("pre-tokenizer", name);
    return behavior->second;
  }

  void read_split(const json& step) {
    const json& pattern = step.at("pattern");
    const bool literal = !pattern.contains("Regex");
    parts_.splits.push_back({pattern.at(literal ? "String" : "Regex").get<std::string>(),
                             behavior_of(step.at("behavior").get<std::string>()),
                             step.value("invert", false), literal});
  }

  void read_post_processor() {
    bool is_known = false;
    for_each_step(file_.value("post_processor", json()), "processors",
                  [&](const json& step, const std::string& type) {
                    if (type == "ByteLevel") return;  // it changes offsets only
                    if (std::exchange(is_known, true)) refuse("post-processor", step);
                    if (type == "TemplateProcessing")
                      read_template_of(step);
                    else if (type == "BertProcessing" || type == "RobertaProcessing")
                      put_around({read_id(step.at("cls").at(1))}, {read_id(step.at("sep").at(1))});
                    else
                      refuse("post-processor", step);
                  });
  }

  // As in the library, the ids are those that the template gives to its special tokens.
  void read_template_of(const json& step) {
    const json& single = step.at("single");
    if (std::ranges::count_if(single, [](const json& p) { return p.contains("Sequence"); }) != 1)
      refuse("post-processor", step);
    std::vector<int32_t> before, behind;
    bool is_behind = false;
    for (const json& part : single) {
      if (part.contains("Sequence")) {
        if (part["Sequence"].value("id", "A") != "A") refuse("post-processor", step);
        is_behind = true;
        continue;
      }
      const auto text = part.at("SpecialToken").at("id").get<std::string>();
      for (const json& id : step.at("special_tokens").at(text).at("ids"))
        (is_behind ? behind : before).push_back(read_id(id));
    }
    put_around(before, behind);
  }

  static int32_t read_id(const json& id) {
    return bounded_number<int32_t>(id, 0, std::numeric_limits<int32_t>::max(),
                                   "an id of the post-processor");
  }

  void put_around(const std::vector<int32_t>& before, std::vector<int32_t> behind) {
    parts_.suffix = std::move(behind);
    parts_.add_bos = !before.empty();
    if (before.empty()) return;
    parts_.bos = before.front();
    parts_.prefix.assign(before.begin() + 1, before.end());
  }

  // Only which spaces the decoder leaves out is kept: the rest follows from the other parts.
  void read_decoder() {
    for_each_step(file_.value("decoder", json()), "decoders",
                  [&](const json& step, const std::string& type) {
                    static const std::set<std::string> known = {
                        "ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"};
                    if (!known.contains(type)) refuse("decoder", step);
                    if (type == "Metaspace" && step.value("prepend_scheme", "always") != "never")
                      parts_.strip = SpaceStrip::all;
                    else if (type == "Strip" && step.value("content", " ") == " " &&
                             step.value("start", 1) > 0)
                      parts_.strip = SpaceStrip::one;
                  });
  }

  const json& file_;
  BpeParts& parts_;
  WordKinds kinds_;
};

}  // namespace

WordKinds read_bpe_steps(const json& file, BpeParts& parts) {
  return StepsReader(file, parts).read();
}

}  // namespace rw
