#include "data/tokenizers/bpe_writer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/base/error.h"
#include "data/base/base64.h"
#include "data/base/files.h"
#include "data/tokenizers/bpe_steps.h"

namespace rw {

namespace {

using nlohmann::json;

json sequence(const char* list, json steps) {
  if (steps.empty()) return nullptr;
  return {{"type", "Sequence"}, {list, std::move(steps)}};
}

// The name of a value, of those that a list has.
template <class Names, class Value>
json name_in(const Names& names, Value value) {
  return std::ranges::find(names, value, [](const auto& name) { return name.second; })->first;
}

json normalizer_step_of(const NormalizerStep& step) {
  json made = {{"type", name_in(normalizer_names, step.kind)}};
  switch (step.kind) {
    case Normalization::prepend:
      made["prepend"] = step.content;
      break;
    case Normalization::replace:
      made["pattern"] = {{step.literal ? "String" : "Regex", step.pattern}};
      made["content"] = step.content;
      break;
    case Normalization::strip:
      made["strip_left"] = step.left;
      made["strip_right"] = step.right;
      break;
    case Normalization::charsmap:
    case Normalization::charsmap_longest:
      made["precompiled_charsmap"] = to_base64(step.pattern);
      break;
    case Normalization::bert_clean:
    case Normalization::bert_ideographs:
    case Normalization::bert_accents:
      made["clean_text"] = step.kind == Normalization::bert_clean;
      made["handle_chinese_chars"] = step.kind == Normalization::bert_ideographs;
      made["strip_accents"] = step.kind == Normalization::bert_accents;
      made["lowercase"] = false;
      break;
    default:
      break;
  }
  return made;
}

json normalizer_of(const BpeParts& parts) {
  json steps = json::array();
  for (const NormalizerStep& step : parts.normalizers) steps.push_back(normalizer_step_of(step));
  return sequence("normalizers", std::move(steps));
}

json byte_level_step(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", false},
          {"use_regex", use_regex}};
}

json pre_tokenizer_of(const BpeParts& parts) {
  json steps = json::array();
  const auto add_split = [&](const TextSplit& split) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{split.literal ? "String" : "Regex", split.pattern}}},
                     {"behavior", name_in(split_behavior_names, split.behavior)},
                     {"invert", split.invert}});
  };
  for (const TextSplit& split : parts.early_splits) add_split(split);
  auto splits = std::span(parts.splits);
  // The pattern of GPT-2 is ByteLevel's own.
  const bool has_gpt2 =
      parts.byte_level && !splits.empty() && splits.back().pattern == gpt2_pattern;
  if (has_gpt2) splits = splits.first(splits.size() - 1);
  if (parts.metaspace)
    steps.push_back({{"type", "Metaspace"},
                     {"replacement", space_mark},
                     {"prepend_scheme", parts.space_prefix == SpacePrefix::unless_space ? "always"
                                        : parts.space_prefix == SpacePrefix::none       ? "never"
                                                                                        : "first"},
                     {"split", false}});
  for (const TextSplit& split : splits) add_split(split);
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
  const bool begins = parts.add_bos && parts.bos;
  if (!begins && parts.suffix.empty()) return nullptr;
  json tokens = json::object();
  const auto special = [&](int32_t id, int type) {
    const std::string& text = parts.tokens[static_cast<size_t>(id)].text;
    tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    return json{{"SpecialToken", {{"id", text}, {"type_id", type}}}};
  };
  const auto around = [&](const char* name, int type) {
    json all = json::array();
    if (begins) all.push_back(special(*parts.bos, type));
    if (begins)
      for (const int32_t id : parts.prefix) all.push_back(special(id, type));
    all.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    for (const int32_t id : parts.suffix) all.push_back(special(id, type));
    return all;
  };
  const json single = around("A", 0);
  json pair = single;
  for (json& part : around("B", 1)) pair.push_back(std::move(part));
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(tokens)}};
}

json decoder_of(const BpeParts& parts) {
  if (parts.byte_level) return byte_level_step(false, false);
  json steps = json::array();
  const bool has_metaspace = parts.strip == SpaceStrip::all;
  if (!has_metaspace)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}});
  if (parts.scores.empty() || parts.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  if (has_metaspace)
    steps.push_back({{"type", "Metaspace"},
                     {"replacement", space_mark},
                     {"prepend_scheme", "always"},
                     {"split", true}});
  else
    steps.push_back({{"type", "Fuse"}});
  if (parts.strip == SpaceStrip::one)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return sequence("decoders", std::move(steps));
}

json merges_model_of(const BpeParts& parts) {
  json vocabulary = json::object(), merges = json::array(), unknown;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    const BpeToken& token = parts.tokens[id];
    if (!token.is_gap()) vocabulary[token.text] = id;
    if (token.type == TokenType::unknown) unknown = token.text;
  }
  for (const auto& [left, right] : parts.merges)
    merges.push_back(json::array({parts.tokens[static_cast<size_t>(left)].text,
                                  parts.tokens[static_cast<size_t>(right)].text}));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", std::move(unknown)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", !parts.byte_level},
          {"byte_fallback", !parts.byte_level},
          {"ignore_merges", parts.ignore_merges},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

// In the file every token is a piece. Those that are not found in texts are as bad as the worst
// one.
json unigram_model_of(const BpeParts& parts) {
  double lowest = 0;
  for (const double score : parts.scores)
    if (std::isfinite(score)) lowest = std::min(lowest, score);
  json pieces = json::array();
  for (size_t id = 0; id < parts.scores.size(); ++id)
    pieces.push_back(json::array(
        {parts.tokens[id].text, std::isfinite(parts.scores[id]) ? parts.scores[id] : lowest}));
  return {{"type", "Unigram"},
          {"unk_id", parts.unknown ? json(*parts.unknown) : json()},
          {"vocab", std::move(pieces)},
          {"byte_fallback", parts.byte_fallback}};
}

json tokenizer_json(const BpeParts& parts) {
  json added = json::array();
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    const BpeToken& token = parts.tokens[id];
    if (is_added(token.type))
      added.push_back({{"id", id},
                       {"content", token.text},
                       {"single_word", token.single_word},
                       {"lstrip", token.lstrip},
                       {"rstrip", token.rstrip},
                       {"normalized", token.normalized},
                       {"special", is_special(token.type)}});
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", normalizer_of(parts)},
          {"pre_tokenizer", pre_tokenizer_of(parts)},
          {"post_processor", post_processor_of(parts)},
          {"decoder", decoder_of(parts)},
          {"model", parts.scores.empty() ? merges_model_of(parts) : unigram_model_of(parts)}};
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
  if (parts.eos_token)
    name("eos_token", *parts.eos_token);
  else if (!parts.eos.empty())
    name("eos_token", parts.eos.front());
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
