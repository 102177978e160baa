// Conversations as the texts on which chat models were trained.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template.h"

namespace rw {

class BpeTokenizer;

// Renders conversations as the chat template of a model does. Templates are programs in Jinja:
// python3 runs them with the package jinja2, as transformers does, in a process of its own. Some
// formats are known here and need neither.
class ChatFormat {
 public:
  // The tokenizer's chat template, or the format of a name: chatml (also Qwen2, SmolLM2), qwen3,
  // llama3, llama3.1, gemma (3), llama2. ValueError for other names, and, if no name is given, for
  // a template that is missing or no program; FileError where python3 or jinja2 is missing and the
  // template is not byte for byte one that is known here.
  explicit ChatFormat(const BpeTokenizer& tokenizer, std::string_view name = {});

  // The text of a conversation, as transformers' apply_chat_template(tokenize=False) gives it,
  // special tokens and the one that begins texts included; with `generation_prompt`, it ends where
  // the assistant's answer begins. ValueError for roles that are unknown, and for a conversation
  // that the template refuses: Gemma's roles must alternate.
  std::string render(std::span<const ChatMessage> messages, bool generation_prompt = true) const;
  // The same for many conversations, each with its text or why it is refused; a template is run
  // once for hundreds of them.
  std::vector<RenderedChat> render_all(std::span<const ChatRequest> requests) const;

  // One of those above, or "template" for one that is run.
  const std::string& name() const { return name_; }
  // The token that ends what the assistant says, as a text: "<|im_end|>", "<|eot_id|>". Empty if
  // the template puts none there.
  const std::string& end_of_turn() const { return end_of_turn_; }

 private:
  std::string named_token(const char* role) const {
    const auto found = tokens_.find(role);
    return found == tokens_.end() ? std::string() : found->second;
  }
  std::string run(std::span<const ChatMessage> messages, bool generation_prompt) const;
  std::string end_of_answer(const BpeTokenizer& tokenizer) const;
  std::string chatml(std::span<const ChatMessage> messages) const;
  std::string qwen3(std::span<const ChatMessage> messages) const;
  std::string llama3(std::span<const ChatMessage> messages) const;
  std::string gemma(std::span<const ChatMessage> messages) const;
  std::string llama2(std::span<const ChatMessage> messages) const;

  std::string name_, end_of_turn_;
  std::map<std::string, std::string> tokens_;  // by the names that templates have for them
  std::string jinja_;                          // of a template that is run
  std::string answer_;                         // the text before an assistant's message
  std::string default_system_;                 // of chatml: the system message if none is given
};

}  // namespace rw
