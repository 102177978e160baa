#include "trainer/language/text_generation.h"

#include <algorithm>
#include <chrono>

#include "trainer/language/language_model.h"

namespace rw {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_)
    check(!string.empty(), "stop", "a string that ends a text must not be empty");
}

std::string StopStrings::push(std::string_view piece) {
  if (found_) return {};
  pending_ += piece;
  size_t end = std::string::npos;
  for (const std::string& string : strings_) end = std::min(end, pending_.find(string));
  if (end != std::string::npos) {
    found_ = true;
    std::string text = pending_.substr(0, end);
    pending_.clear();
    return text;
  }
  size_t held = 0;
  for (const std::string& string : strings_) {
    size_t length = std::min(string.size() - 1, pending_.size());
    while (length > held && !pending_.ends_with(std::string_view(string).substr(0, length)))
      --length;
    held = std::max(held, length);
  }
  std::string text = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, text.size());
  return text;
}

std::string StopStrings::finish() {
  return std::exchange(pending_, {});
}

std::string indented(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
    text.replace(at, 1, "\n  ");
  return text;
}

GeneratedText continue_text(CausalLM& model, const BpeTokenizer& tokenizer,
                            std::span<const int32_t> prompt, const TextOptions& o) {
  check(!prompt.empty(), "generate", "the prompt must have a token: give a text");
  check_tokens(prompt, tokenizer, model.vocabulary());
  const int64_t room = model.longest() - static_cast<int64_t>(prompt.size());
  check(room > 0, "generate",
        "the prompt must leave room in the model's {} positions, got {} tokens", model.longest(),
        prompt.size());
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  GeneratedText result{.prompt_tokens = static_cast<int64_t>(prompt.size())};
  StreamingDecoder decoder(tokenizer);
  StopStrings stop(o.stop);
  const auto emit = [&](const std::string& text) {
    result.text += text;
    if (o.on_text && !text.empty()) o.on_text(text);
  };
  Clock::time_point begin = Clock::now();
  GenerateOptions generate = o.generate;
  generate.max_new_tokens = std::min(generate.max_new_tokens, room);
  generate.on_tokens = [&](std::span<const int32_t> tokens) {
    if (result.tokens++ == 0) {
      result.first_seconds = seconds_since(begin);
      begin = Clock::now();
    }
    result.is_complete = tokenizer.is_eos(tokens[0]) ||
                         std::ranges::find(o.end_tokens, tokens[0]) != o.end_tokens.end();
    // Embeddings may have more rows than the tokenizer has tokens; these have no text.
    if (!result.is_complete && tokens[0] < tokenizer.size())
      emit(stop.push(decoder.push(tokens[0])));
    result.is_complete = result.is_complete || stop.found();
    return !result.is_complete;
  };
  const std::vector<int32_t> ids(prompt.begin(), prompt.end());
  model.generate(tensor(ids, {1, result.prompt_tokens}), generate);
  result.seconds = result.tokens > 0 ? seconds_since(begin) : 0;
  emit(stop.push(decoder.finish()));
  emit(stop.finish());
  return result;
}

}  // namespace rw
