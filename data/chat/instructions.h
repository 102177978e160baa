// Examples of instructions and answers, on which language models are fine-tuned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rw {

class BpeTokenizer;
class ChatFormat;

// A text to learn.
struct InstructionExample {
  std::vector<int32_t> tokens;  // of the whole text
  std::vector<uint8_t> counts;  // [tokens]: 1 for each that the loss counts, else 0

  // The tokens that count, without the first of the text, which nothing predicts.
  int64_t targets() const;
};

// How texts become examples.
struct InstructionOptions {
  int64_t longest = 1025;    // tokens of an example: those of a row, and one that only is a target
  bool all_tokens = false;   // prompts are learnt, too, and not only answers
  bool refuse_long = false;  // a text that is longer is an error; otherwise its end is cut off
};

// The examples of a file.
struct Instructions {
  std::vector<InstructionExample> examples;
  int64_t cut = 0;      // examples that lost their end
  int64_t dropped = 0;  // texts whose answers all lay behind the cut, and which are no examples
};

// Reads a JSON object a line (blank lines do not count), by its keys: `messages`, a list of
// {"role", "content"} with answers of the assistant, which `chat` makes a text of; or `prompt` and
// `completion`, which are a message and its answer, or without `chat` a text and how it continues;
// or `text`, which counts as a whole. Others are left alone. An answer counts from its first token
// to the one that ends the turn; what has no end of its own gets the tokenizer's token for it.
// `chat` may be null if no line has messages. FileError with the number of the line and what to do
// for lines that are not such objects, have no answer, or are refused by the template; for a
// template whose text up to an answer does not begin the text of the whole; for texts that are too
// long if these are refused; and if there is no example. `name` is that of the file in messages.
Instructions read_instructions(std::string_view jsonl, const std::string& name,
                               const BpeTokenizer& tokenizer, const ChatFormat* chat,
                               const InstructionOptions& options);
// The same with the text of a file.
Instructions read_instructions(const std::filesystem::path& file, const BpeTokenizer& tokenizer,
                               const ChatFormat* chat, const InstructionOptions& options);

// Takes a share of the examples out of them, drawn by the seed: for a validation. At least one goes
// and one stays: ValueError if there are fewer than two, or unless the share is in (0, 1).
std::vector<InstructionExample> split_off(std::vector<InstructionExample>& examples, double share,
                                          uint64_t seed);

}  // namespace rw
