#include "data/chat/chat_format.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/base/unicode.h"
#include "data/tokenizers/bpe_tokenizer.h"

namespace rw {

namespace {

// Python's str.isspace().
bool is_blank(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// Jinja's filter `trim`, and Python's strip().
std::string_view stripped(std::string_view text) {
  size_t begin = text.size(), end = 0;
  Character c;
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    if (next_character(text, at, c) && is_blank(c.code)) continue;
    begin = std::min(begin, from);
    end = at;
  }
  return text.substr(begin, std::max(begin, end) - begin);
}

std::string_view without_line_ends(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
  return text.substr(begin, text.find_last_not_of('\n') + 1 - begin);
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

// Templates that are published and that a format renders like Jinja, by the hashes of their bytes.
struct KnownTemplate {
  uint64_t hash;
  std::string_view format, default_system = {};
};
constexpr std::array<KnownTemplate, 7> known_templates = {{
    {0xa41d6bae9b9141bc, "chatml"},  // OpenHermes 2.5, and many others
    {0x45ec583d4d25bc3a, "chatml",   // SmolLM2
     "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {0xc2b27ee60f1b8775, "chatml",  // Qwen2.5
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {0x2bfdb7aa9754484e, "qwen3"},
    {0x60848a05837ce656, "llama3.1"},
    {0xc90dea00b85c935d, "gemma"},  // Gemma 3
    {0xf344eecf1bd3a427, "llama2"},
}};

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
  const BpeParts& parts = tokenizer.parts();
  const auto add_token = [&](const char* role, std::optional<int32_t> id) {
    if (id) tokens_[role] = tokenizer.token(*id);
  };
  add_token("bos_token", parts.bos);
  add_token("eos_token", tokenizer.eos());
  add_token("pad_token", parts.pad);
  const auto unknown = std::ranges::find(parts.tokens, TokenType::unknown, &BpeToken::type);
  if (unknown != parts.tokens.end()) tokens_["unk_token"] = unknown->text;
  if (name.empty()) {
    check(!parts.chat_template.empty(), "ChatFormat",
          "the model must have a chat template, and there is none; name the format that it was "
          "trained on (--chat-format chatml)");
    const uint64_t hash = fnv1a(std::as_bytes(std::span(parts.chat_template)));
    const auto found = std::ranges::find(known_templates, hash, &KnownTemplate::hash);
    if (found == known_templates.end()) {
      name_ = "template";
      jinja_ = parts.chat_template;
      end_of_turn_ = end_of_answer(tokenizer);
      return;
    }
    name = found->format;
    default_system_ = found->default_system;
  }
  const auto found = std::ranges::find(known, name, &KnownFormat::name);
  check(found != known.end(), "ChatFormat",
        "the name must be chatml, qwen3, llama3, llama3.1, gemma or llama2, got {:?}", name);
  name_ = found->name;
  end_of_turn_ = found->end_of_turn;
  answer_ = found->answer;
}

std::string ChatFormat::run(std::span<const ChatMessage> messages, bool generation_prompt) const {
  const ChatRequest request{messages, generation_prompt};
  const RenderedChat chat = run_chat_template(jinja_, tokens_, {&request, 1}).front();
  check(chat.refusal.empty(), "ChatFormat", "the chat template refuses this conversation: {}",
        chat.refusal);
  return chat.text;
}

// The token that the template puts behind an answer.
std::string ChatFormat::end_of_answer(const BpeTokenizer& tokenizer) const {
  const std::string answer = "rewindanswers";
  const ChatMessage chat[] = {{"user", "a"}, {"assistant", answer}};
  const ChatRequest request{chat, false};
  const std::string text = run_chat_template(jinja_, tokens_, {&request, 1}).front().text;
  const size_t at = text.rfind(answer);
  if (at == text.npos) return {};
  const std::vector<int32_t> ids =
      tokenizer.encode(stripped(std::string_view(text).substr(at + answer.size())));
  const bool is_end =
      !ids.empty() && is_added(tokenizer.parts().tokens[static_cast<size_t>(ids[0])].type);
  return is_end ? tokenizer.token(ids[0]) : std::string();
}

std::string ChatFormat::render(std::span<const ChatMessage> messages,
                               bool generation_prompt) const {
  for (const ChatMessage& message : messages)
    check(message.role == "system" || message.role == "user" || message.role == "assistant",
          "ChatFormat", "roles must be system, user or assistant, got {:?}", message.role);
  check(!messages.empty(), "ChatFormat", "there must be a message, got none");
  if (!jinja_.empty()) return run(messages, generation_prompt);
  std::string text = name_ == "chatml"   ? chatml(messages)
                     : name_ == "qwen3"  ? qwen3(messages)
                     : name_ == "gemma"  ? gemma(messages)
                     : name_ == "llama2" ? llama2(messages)
                                         : llama3(messages);
  return generation_prompt ? text + answer_ : text;
}

std::vector<RenderedChat> ChatFormat::render_all(std::span<const ChatRequest> requests) const {
  constexpr size_t most = 256;  // that a process surely renders within its limits
  std::vector<RenderedChat> chats;
  if (!jinja_.empty()) {
    for (size_t at = 0; at < requests.size(); at += most)
      for (RenderedChat& chat : run_chat_template(
               jinja_, tokens_, requests.subspan(at, std::min(most, requests.size() - at))))
        chats.push_back(std::move(chat));
    return chats;
  }
  for (const ChatRequest& request : requests) {
    try {
      chats.push_back({render(request.messages, request.generation_prompt), {}});
    } catch (const ValueError& error) {
      chats.push_back({{}, error.what()});
    }
  }
  return chats;
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
      thought = without_line_ends(thought);
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
  std::string text = named_token("bos_token");
  const auto say = [&](std::string_view role, std::string_view content) {
    text += fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", role, content);
  };
  if (name_ == "llama3.1") {
    const bool has_system = is_system(messages);
    say("system",
        fmt::format("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n{}",
                    has_system ? stripped(messages.front().content) : ""));
    messages = messages.subspan(has_system);
  }
  for (const ChatMessage& message : messages) say(message.role, stripped(message.content));
  return text;
}

std::string ChatFormat::gemma(std::span<const ChatMessage> messages) const {
  std::string text = named_token("bos_token");
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
      text += fmt::format("{}[INST] {} [/INST]", named_token("bos_token"), stripped(content));
    else
      text += fmt::format(" {} {}", stripped(content), named_token("eos_token"));
    before.clear();
  }
  return text;
}

}  // namespace rw
