#include "data/tokenizers/bpe_writer.h"

#include <nlohmann/json.hpp>

#include <span>
#include <unordered_map>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/tokenizers/bpe_model.h"

namespace rw {

namespace {

using nlohmann::json;

json sequence(const char* list, json steps) {
  if (steps.empty()) return nullptr;
  return {{"type", "Sequence"}, {list, std::move(steps)}};
}

bool has_metaspace(const BpeParts& parts) {
  return !parts.byte_level && (parts.space_prefix == SpacePrefix::unless_space ||
                               parts.space_prefix == SpacePrefix::first_unless_space);
}

json normalizer_of(const BpeParts& parts) {
  json steps = json::array();
  if (parts.nfc) steps.push_back({{"type", "NFC"}});
  if (!parts.byte_level && !has_metaspace(parts)) {
    if (parts.space_prefix == SpacePrefix::always)
      steps.push_back({{"type", "Prepend"}, {"prepend", space_mark}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_mark}});
  }
  return sequence("normalizers", std::move(steps));
}

json byte_level_step(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", false},
          {"use_regex", use_regex}};
}

json pre_tokenizer_of(const BpeParts& parts) {
  static const std::unordered_map<SplitBehavior, const char*> names = {
      {SplitBehavior::isolated, "Isolated"},
      {SplitBehavior::removed, "Removed"},
      {SplitBehavior::merged_with_previous, "MergedWithPrevious"},
      {SplitBehavior::merged_with_next, "MergedWithNext"}};
  json steps = json::array();
  auto splits = std::span(parts.splits);
  // The pattern of GPT-2 is ByteLevel's own.
  const bool has_gpt2 =
      parts.byte_level && !splits.empty() && splits.back().pattern == gpt2_pattern;
  if (has_gpt2) splits = splits.first(splits.size() - 1);
  if (has_metaspace(parts))
    steps.push_back(
        {{"type", "Metaspace"},
         {"replacement", space_mark},
         {"prepend_scheme", parts.space_prefix == SpacePrefix::unless_space ? "always" : "first"},
         {"split", false}});
  for (const TextSplit& split : splits)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{split.literal ? "String" : "Regex", split.pattern}}},
                     {"behavior", names.at(split.behavior)},
                     {"invert", split.invert}});
  if (parts.byte_level) {
    const bool adds_space = parts.space_prefix == SpacePrefix::unless_space;
    check(parts.space_prefix == SpacePrefix::none || (adds_space && splits.empty()), "BpeTokenizer",
          "tokenizer.json has no form for a space before words that {} patterns cut; save it "
          "without space_prefix",
          splits.size());
    steps.push_back(byte_level_step(adds_space, has_gpt2));
  }
  return sequence("pretokenizers", std::move(steps));
}

json post_processor_of(const BpeParts& parts) {
  if (!parts.add_bos || !parts.bos) return nullptr;
  const std::string& text = parts.tokens[static_cast<size_t>(*parts.bos)].text;
  const auto bos = [&](int type) {
    return json{{"SpecialToken", {{"id", text}, {"type_id", type}}}};
  };
  const auto words = [](const char* name, int type) {
    return json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", json::array({bos(0), words("A", 0)})},
          {"pair", json::array({bos(0), words("A", 0), bos(1), words("B", 1)})},
          {"special_tokens", {{text, {{"id", text}, {"ids", {*parts.bos}}, {"tokens", {text}}}}}}};
}

json decoder_of(const BpeParts& parts) {
  if (parts.byte_level) return byte_level_step(false, false);
  json steps = {{{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (parts.space_prefix != SpacePrefix::none)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return sequence("decoders", std::move(steps));
}

json tokenizer_json(const BpeParts& parts) {
  json vocabulary = json::object(), merges = json::array(), added = json::array(), unknown;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    const BpeToken& token = parts.tokens[id];
    vocabulary[token.text] = id;
    if (token.type == TokenType::unknown) unknown = token.text;
    if (is_added(token.type))
      added.push_back({{"id", id},
                       {"content", token.text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", token.normalized},
                       {"special", is_special(token.type)}});
  }
  for (const auto& [left, right] : parts.merges)
    merges.push_back(json::array({parts.tokens[static_cast<size_t>(left)].text,
                                  parts.tokens[static_cast<size_t>(right)].text}));
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", normalizer_of(parts)},
          {"pre_tokenizer", pre_tokenizer_of(parts)},
          {"post_processor", post_processor_of(parts)},
          {"decoder", decoder_of(parts)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", std::move(unknown)},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", !parts.byte_level},
            {"byte_fallback", !parts.byte_level},
            {"ignore_merges", parts.ignore_merges},
            {"vocab", std::move(vocabulary)},
            {"merges", std::move(merges)}}}};
}

json tokenizer_config(const BpeParts& parts) {
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false},
                 {"add_bos_token", parts.add_bos}};
  const auto name = [&](const char* role, int32_t id) {
    config[role] = parts.tokens[static_cast<size_t>(id)].text;
  };
  if (parts.bos) name("bos_token", *parts.bos);
  if (parts.pad) name("pad_token", *parts.pad);
  if (!parts.eos.empty()) name("eos_token", parts.eos.front());
  if (!parts.chat_template.empty()) config["chat_template"] = parts.chat_template;
  return config;
}

}  // namespace

void write_bpe_files(const std::filesystem::path& folder, const BpeParts& parts) {
  const std::string file = tokenizer_json(parts).dump(), config = tokenizer_config(parts).dump(2);
  write_file(folder / "tokenizer.json", file);
  write_file(folder / "tokenizer_config.json", config);
}

}  // namespace rw
