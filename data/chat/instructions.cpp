#include "data/chat/instructions.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "core/files/json_file.h"
#include "data/base/files.h"
#include "data/base/random.h"
#include "data/chat/chat_format.h"
#include "data/tokenizers/bpe_tokenizer.h"

namespace rw {

namespace {

using nlohmann::json;

// A line of the file: a conversation, or else a text that may begin with a prompt.
struct InstructionLine {
  size_t number = 0;  // from 1 on
  std::vector<ChatMessage> messages;
  std::string prompt, text;
  bool has_prompt = false;
  size_t requests = 0;  // of its conversation
};

// Fails with the place of a line.
template <class... Args>
[[noreturn]] void fail_at(const std::string& file, size_t line, const char* message,
                          Args&&... args) {
  fail<FileError>("instructions", "line {} of '{}': {}", line, file,
                  fmt::format(fmt::runtime(message), std::forward<Args>(args)...));
}

class LineParser {
 public:
  LineParser(const std::string& file, bool has_chat) : file_(file), has_chat_(has_chat) {}

  InstructionLine parse(std::string_view line, size_t number) {
    number_ = number;
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object())
      fail_at(file_, number, "must be a JSON object, one a line, got {}",
              object.is_discarded() ? "no JSON" : describe_json(object));
    InstructionLine made{.number = number};
    if (object.contains("messages")) {
      made.messages = messages_of(object["messages"]);
    } else if (object.contains("prompt") && object.contains("completion")) {
      made.prompt = string_of(object, "prompt");
      const std::string completion = string_of(object, "completion");
      if (completion.empty()) fail_at(file_, number, "the completion must not be empty");
      if (has_chat_)
        made.messages = {{"user", made.prompt}, {"assistant", completion}};
      else
        made.text = made.prompt + completion;
      made.has_prompt = true;
    } else if (object.contains("text")) {
      made.text = string_of(object, "text");
      if (made.text.empty()) fail_at(file_, number, "the text must not be empty");
    } else {
      fail_at(file_, number, "must have `messages`, `prompt` and `completion`, or `text`, got {}",
              describe_json(object));
    }
    return made;
  }

 private:
  std::string string_of(const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string())
      fail_at(file_, number_, "{:?} must be a text, got {}", key,
              found == object.end() ? "none" : describe_json(*found));
    return found->get<std::string>();
  }
  std::vector<ChatMessage> messages_of(const json& list) const {
    if (!has_chat_)
      fail_at(
          file_, number_,
          "has messages, for which the model must have a chat template, and there is none; name "
          "the format that it was trained on (--chat-format chatml)");
    if (!list.is_array())
      fail_at(file_, number_, "\"messages\" must be a list, got {}", describe_json(list));
    std::vector<ChatMessage> messages;
    for (const json& message : list) {
      if (!message.is_object())
        fail_at(file_, number_, "a message must have a role and a content, got {}",
                describe_json(message));
      messages.push_back({string_of(message, "role"), string_of(message, "content")});
    }
    const auto is_answer = [](const ChatMessage& m) { return m.role == "assistant"; };
    if (std::ranges::none_of(messages, is_answer))
      fail_at(file_, number_, "must have an answer, a message of the role \"assistant\"");
    if (is_answer(messages.front()))
      fail_at(file_, number_, "must begin with a message of the user or of the system");
    for (const ChatMessage& message : messages)
      if (is_answer(message) && message.content.empty())
        fail_at(file_, number_, "an answer must not be empty");
    return messages;
  }

  const std::string& file_;
  const bool has_chat_;
  size_t number_ = 0;
};

size_t common_tokens(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Makes examples of lines.
class ExampleMaker {
 public:
  ExampleMaker(const std::string& file, const BpeTokenizer& tokenizer, const ChatFormat* chat,
               const InstructionOptions& options)
      : file_(file),
        tokenizer_(tokenizer),
        end_of_turn_(chat ? tokenizer.id(chat->end_of_turn()) : std::nullopt),
        options_(options) {}

  // Adds the requests of a conversation: the whole, then for each answer what comes before it, and
  // where no token ends a turn, what comes until its end.
  void add_requests(InstructionLine& line, std::vector<ChatRequest>& requests) const {
    const size_t before = requests.size();
    const std::span<const ChatMessage> all = line.messages;
    requests.push_back({all, false});
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].role != "assistant") continue;
      requests.push_back({all.first(i), true});
      if (!end_of_turn_) requests.push_back({all.first(i + 1), false});
    }
    line.requests = requests.size() - before;
  }

  InstructionExample conversation(const InstructionLine& line,
                                  std::span<const RenderedChat> chats) const {
    for (const RenderedChat& chat : chats)
      if (!chat.refusal.empty())
        fail_at(file_, line.number, "the chat template refuses the conversation: {}", chat.refusal);
    const std::string& whole = chats[0].text;
    InstructionExample made{.tokens = tokenizer_.encode(whole)};
    made.counts.resize(made.tokens.size(), options_.all_tokens);
    for (size_t i = 1; i < chats.size(); i += end_of_turn_ ? 1 : 2) {
      const size_t begin = tokens_before(line, whole, chats[i].text, made.tokens);
      const size_t end = end_of_turn_ ? end_of_turn(made.tokens, begin)
                                      : tokens_before(line, whole, chats[i + 1].text, made.tokens);
      for (size_t at = begin; at < end; ++at) made.counts[at] = 1;
    }
    if (!end_of_turn_) add_end(made);
    return made;
  }

  InstructionExample text(const InstructionLine& line) const {
    InstructionExample made{.tokens = encoded(line.text)};
    const size_t begin = line.has_prompt && !options_.all_tokens
                             ? common_tokens(made.tokens, encoded(line.prompt))
                             : 0;
    made.counts.resize(made.tokens.size(), 1);
    std::fill_n(made.counts.begin(), begin, 0);
    if (!tokenizer_.is_eos(made.tokens.back())) add_end(made);
    return made;
  }

  // Adds an example, or what is left of it.
  void add(InstructionExample made, size_t line, Instructions& to) const {
    const auto most = static_cast<size_t>(options_.longest);
    const bool is_long = made.tokens.size() > most;
    if (is_long && options_.refuse_long)
      fail_at(file_, line,
              "the text has {} tokens, more than the {} of a row; take longer rows "
              "(--seq), or cut it",
              made.tokens.size(), most);
    if (is_long) {
      made.tokens.resize(most);
      made.counts.resize(most);
    }
    if (made.targets() == 0) {
      ++to.dropped;
      return;
    }
    to.cut += is_long;
    to.examples.push_back(std::move(made));
  }

 private:
  // With the tokens that begin texts, unless they are there.
  std::vector<int32_t> encoded(const std::string& text) const {
    const auto bos = tokenizer_.bos();
    const bool begins = bos && text.starts_with(tokenizer_.token(*bos));
    return tokenizer_.encode(text, true, !begins, false);
  }
  void add_end(InstructionExample& example) const {
    if (!tokenizer_.eos()) return;
    example.tokens.push_back(*tokenizer_.eos());
    example.counts.push_back(1);
  }
  // Returns how many tokens of the whole text lie before the end of a part.
  size_t tokens_before(const InstructionLine& line, const std::string& whole,
                       const std::string& part, const std::vector<int32_t>& tokens) const {
    if (!whole.starts_with(part))
      fail_at(file_, line.number,
              "the chat template must render the messages before an answer as it does within the "
              "whole conversation, and does not, so where the answer begins is unknown; train on "
              "conversations of one answer, or name a format (--chat-format chatml)");
    return common_tokens(tokens, tokenizer_.encode(part));
  }
  size_t end_of_turn(const std::vector<int32_t>& tokens, size_t begin) const {
    const auto found =
        std::find(tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end(), *end_of_turn_);
    return static_cast<size_t>(found - tokens.begin()) + (found != tokens.end());
  }

  const std::string& file_;
  const BpeTokenizer& tokenizer_;
  const std::optional<int32_t> end_of_turn_;  // the token, if the chat format has one
  const InstructionOptions& options_;
};

}  // namespace

int64_t InstructionExample::targets() const {
  return counts.empty() ? 0 : std::count(counts.begin() + 1, counts.end(), 1);
}

Instructions read_instructions(std::string_view jsonl, const std::string& name,
                               const BpeTokenizer& tokenizer, const ChatFormat* chat,
                               const InstructionOptions& options) {
  check(options.longest > 1, "instructions", "an example must have two tokens or more, got {}",
        options.longest);
  LineParser parser(name, chat != nullptr);
  const ExampleMaker maker(name, tokenizer, chat, options);
  std::vector<InstructionLine> lines;
  for (size_t number = 1; !jsonl.empty(); ++number) {
    const std::string_view line = jsonl.substr(0, jsonl.find('\n'));
    jsonl.remove_prefix(std::min(jsonl.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    lines.push_back(parser.parse(line, number));
  }
  std::vector<ChatRequest> requests;
  for (InstructionLine& line : lines)
    if (!line.messages.empty()) maker.add_requests(line, requests);
  const std::vector<RenderedChat> chats =
      requests.empty() ? std::vector<RenderedChat>() : chat->render_all(requests);
  Instructions read;
  std::span<const RenderedChat> left = chats;
  for (const InstructionLine& line : lines) {
    if (line.messages.empty()) {
      maker.add(maker.text(line), line.number, read);
      continue;
    }
    maker.add(maker.conversation(line, left.first(line.requests)), line.number, read);
    left = left.subspan(line.requests);
  }
  check<FileError>(!read.examples.empty(), "instructions",
                   "'{}' must have an example whose answer begins within {} tokens, got none of {} "
                   "lines",
                   name, options.longest, lines.size());
  return read;
}

Instructions read_instructions(const std::filesystem::path& file, const BpeTokenizer& tokenizer,
                               const ChatFormat* chat, const InstructionOptions& options) {
  return read_instructions(read_text(file), file.string(), tokenizer, chat, options);
}

std::vector<InstructionExample> split_off(std::vector<InstructionExample>& examples, double share,
                                          uint64_t seed) {
  check(share > 0 && share < 1, "instructions",
        "the share for the validation must be between 0 and 1, got {}", share);
  check(examples.size() > 1, "instructions",
        "there must be two examples or more to train and to validate with, got {}",
        examples.size());
  const auto wanted = static_cast<size_t>(share * static_cast<double>(examples.size()) + 0.5);
  const size_t count = std::clamp<size_t>(wanted, 1, examples.size() - 1);
  // Each example is drawn with the chance that gives `count` in all (Knuth's algorithm S).
  DataRandom random(seed, 2);
  std::vector<InstructionExample> drawn, kept;
  for (size_t i = 0; i < examples.size(); ++i) {
    const bool is_drawn = random.below(examples.size() - i) < count - drawn.size();
    (is_drawn ? drawn : kept).push_back(std::move(examples[i]));
  }
  examples = std::move(kept);
  return drawn;
}

}  // namespace rw
