// Conversations as the texts on which chat models were trained.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

class BpeTokenizer;

// A turn of a conversation: its `content` and the `role` that says it, "system", "user" or
// "assistant".
struct ChatMessage {
  std::string role, content;
};

// Renders conversations as the chat templates of known families of models do. Templates are
// programs in Jinja; this recognises them by what they contain and runs none.
class ChatFormat {
 public:
  // The format of the tokenizer's chat template, or the one of a name: chatml (also Qwen2,
  // SmolLM2), qwen3, llama3, llama3.1, gemma, llama2. ValueError for other names, and, if no name
  // is given, for a template that is none of these or missing.
  explicit ChatFormat(const BpeTokenizer& tokenizer, std::string_view name = {});

  // The text of a conversation, as transformers' apply_chat_template(tokenize=False) gives it,
  // special tokens and the one that begins texts included; with `generation_prompt`, it ends where
  // the assistant's answer begins. ValueError for roles that are unknown, or, where the template
  // demands it, do not alternate between user and assistant behind one system message.
  std::string render(std::span<const ChatMessage> messages, bool generation_prompt = true) const;

  const std::string& name() const { return name_; }  // one of those above
  // The token that ends what a role says, as a text: "<|im_end|>", "<|eot_id|>".
  const std::string& end_of_turn() const { return end_of_turn_; }

 private:
  std::string chatml(std::span<const ChatMessage> messages) const;
  std::string qwen3(std::span<const ChatMessage> messages) const;
  std::string llama3(std::span<const ChatMessage> messages) const;
  std::string gemma(std::span<const ChatMessage> messages) const;
  std::string llama2(std::span<const ChatMessage> messages) const;

  std::string name_, end_of_turn_, bos_, eos_;
  std::string answer_;          // the text before an assistant's message
  std::string default_system_;  // of chatml: the system message if none is given
  std::string date_;            // of llama3.1
};

}  // namespace rw
