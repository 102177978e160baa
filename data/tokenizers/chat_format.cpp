#include "data/tokenizers/chat_format.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "core/base/error.h"
#include "data/tokenizers/bpe_tokenizer.h"

namespace rw {

namespace {

constexpr std::string_view blanks = " \t\n\r\v\f";

// Jinja's filter `trim`, and Python's strip(), for the blanks of ASCII.
std::string_view stripped(std::string_view text, std::string_view what = blanks) {
  const size_t begin = std::min(text.find_first_not_of(what), text.size());
  return text.substr(begin, text.find_last_not_of(what) + 1 - begin);
}

struct KnownFormat {
  std::string_view name, end_of_turn, answer;
};
constexpr std::array<KnownFormat, 6> known = {{
    {"chatml", "<|im_end|>", "<|im_start|>assistant\n"},
    {"qwen3", "<|im_end|>", "<|im_start|>assistant\n"},
    {"llama3", "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama3.1", "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"gemma", "<end_of_turn>", "<start_of_turn>model\n"},
    {"llama2", "</s>", ""},
}};

// The name of a template's format, or nothing. A marker of other programs (tool use apart) that
// would change what is rendered makes it unknown.
std::string_view recognised(std::string_view jinja) {
  const auto has = [&](std::string_view marker) { return jinja.find(marker) != jinja.npos; };
  if (has("<|im_start|>")) {
    if (has("last_query_index")) return "qwen3";
    return has("<think>") ? "" : "chatml";
  }
  if (has("<|start_header_id|>")) return has("Cutting Knowledge Date") ? "llama3.1" : "llama3";
  if (has("<start_of_turn>")) return "gemma";
  if (has("[INST]") && has("<<SYS>>")) return "llama2";
  return "";
}

// The value of a string of Jinja, which begins with its quote.
std::string jinja_string(std::string_view text) {
  std::string value;
  for (size_t i = 1; i < text.size() && text[i] != text[0]; ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size();
    i += is_escape;
    value += is_escape && text[i] == 'n' ? '\n' : text[i];
  }
  return value;
}

// The words that a template of ChatML puts in the system's mouth if no message does: those of the
// first string with a whole turn.
std::string default_system(std::string_view jinja) {
  constexpr std::string_view begin = "<|im_start|>system\n", end = "<|im_end|>";
  for (size_t at = 0; (at = jinja.find("<|im_start|>", at + 1)) != jinja.npos;) {
    if (jinja[at - 1] != '\'' && jinja[at - 1] != '"') continue;
    const std::string turn = jinja_string(jinja.substr(at - 1));
    if (turn.starts_with(begin) && turn.find(end) != turn.npos)
      return turn.substr(begin.size(), turn.find(end) - begin.size());
  }
  return {};
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%d %b %Y", &local)};
}

bool is_system(std::span<const ChatMessage> messages) {
  return !messages.empty() && messages.front().role == "system";
}

// The messages behind one of the system, which must alternate.
std::span<const ChatMessage> alternating(std::span<const ChatMessage> messages) {
  const auto turns = messages.subspan(is_system(messages));
  for (size_t i = 0; i < turns.size(); ++i)
    check(turns[i].role == (i % 2 == 0 ? "user" : "assistant"), "ChatFormat",
          "roles must alternate between user and assistant behind one system message, got {:?} as "
          "number {} of them",
          turns[i].role, i + 1);
  return turns;
}

}  // namespace

ChatFormat::ChatFormat(const BpeTokenizer& tokenizer, std::string_view name) {
  const std::string& jinja = tokenizer.parts().chat_template;
  if (name.empty()) {
    name = recognised(jinja);
    check(!name.empty(), "ChatFormat",
          "the chat template must be one of chatml, qwen3, llama3, llama3.1, gemma and llama2, and "
          "{}; name the format that the model was trained on (--chat-format chatml)",
          jinja.empty() ? "there is none" : "is another one");
    if (name == "chatml") default_system_ = default_system(jinja);
  }
  const auto found = std::ranges::find(known, name, &KnownFormat::name);
  check(found != known.end(), "ChatFormat",
        "the name must be chatml, qwen3, llama3, llama3.1, gemma or llama2, got {:?}", name);
  name_ = found->name;
  end_of_turn_ = found->end_of_turn;
  answer_ = found->answer;
  if (tokenizer.bos()) bos_ = tokenizer.token(*tokenizer.bos());
  if (tokenizer.eos()) eos_ = tokenizer.token(*tokenizer.eos());
  date_ = jinja.find("strftime_now") == jinja.npos ? "26 Jul 2024" : today();
}

std::string ChatFormat::render(std::span<const ChatMessage> messages,
                               bool generation_prompt) const {
  for (const ChatMessage& message : messages)
    check(message.role == "system" || message.role == "user" || message.role == "assistant",
          "ChatFormat", "roles must be system, user or assistant, got {:?}", message.role);
  check(!messages.empty(), "ChatFormat", "there must be a message, got none");
  std::string text = name_ == "chatml"   ? chatml(messages)
                     : name_ == "qwen3"  ? qwen3(messages)
                     : name_ == "gemma"  ? gemma(messages)
                     : name_ == "llama2" ? llama2(messages)
                                         : llama3(messages);
  return generation_prompt ? text + answer_ : text;
}

std::string ChatFormat::chatml(std::span<const ChatMessage> messages) const {
  std::string text;
  const auto say = [&](std::string_view role, std::string_view content) {
    text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
  };
  if (!default_system_.empty() && !is_system(messages)) say("system", default_system_);
  for (const ChatMessage& message : messages) say(message.role, message.content);
  return text;
}

// The thoughts of the assistant are left out, unless it answers the last question.
std::string ChatFormat::qwen3(std::span<const ChatMessage> messages) const {
  constexpr std::string_view open = "<think>", close = "</think>";
  size_t last_question = messages.size() - 1;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& content = messages[i].content;
    const bool is_tool =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !is_tool) last_question = i;
  }
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    std::string_view content = messages[i].content, thought;
    text += "<|im_start|>" + messages[i].role + '\n';
    if (messages[i].role == "assistant") {
      if (const size_t end = content.find(close); end != content.npos) {
        thought = content.substr(0, end);
        thought = thought.substr(0, thought.find_last_not_of('\n') + 1);
        if (const size_t begin = thought.rfind(open); begin != thought.npos)
          thought.remove_prefix(begin + open.size());
        content.remove_prefix(content.rfind(close) + close.size());
        content.remove_prefix(std::min(content.find_first_not_of('\n'), content.size()));
      }
      thought = stripped(thought, "\n");
      const bool is_answer = i > last_question && (i + 1 == messages.size() || !thought.empty());
      if (is_answer) {
        content.remove_prefix(std::min(content.find_first_not_of('\n'), content.size()));
        text += fmt::format("<think>\n{}\n</think>\n\n", thought);
      }
    }
    text += content;
    text += "<|im_end|>\n";
  }
  return text;
}

std::string ChatFormat::llama3(std::span<const ChatMessage> messages) const {
  std::string text = bos_;
  const auto say = [&](std::string_view role, std::string_view content) {
    text += fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", role, content);
  };
  if (name_ == "llama3.1") {
    const bool has_system = is_system(messages);
    say("system", fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n{}", date_,
                              has_system ? stripped(messages.front().content) : ""));
    messages = messages.subspan(has_system);
  }
  for (const ChatMessage& message : messages) say(message.role, stripped(message.content));
  return text;
}

std::string ChatFormat::gemma(std::span<const ChatMessage> messages) const {
  std::string text = bos_;
  std::string before = is_system(messages) ? messages.front().content + "\n\n" : "";
  for (const ChatMessage& message : alternating(messages)) {
    text += fmt::format("<start_of_turn>{}\n{}{}<end_of_turn>\n",
                        message.role == "assistant" ? "model" : "user", before,
                        stripped(message.content));
    before.clear();
  }
  return text;
}

std::string ChatFormat::llama2(std::span<const ChatMessage> messages) const {
  std::string text;
  std::string before =
      is_system(messages) ? "<<SYS>>\n" + messages.front().content + "\n<</SYS>>\n\n" : "";
  for (const ChatMessage& message : alternating(messages)) {
    const std::string content = before + message.content;
    if (message.role == "user")
      text += fmt::format("{}[INST] {} [/INST]", bos_, stripped(content));
    else
      text += fmt::format(" {} {}", stripped(content), eos_);
    before.clear();
  }
  return text;
}

}  // namespace rw
