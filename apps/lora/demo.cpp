#include "apps/lora/demo.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/rng.h"
#include "data/base/files.h"
#include "data/chat/chat_format.h"
#include "data/chat/packed_examples.h"
#include "data/tokenizers/bpe_training.h"
#include "optim/adam.h"
#include "optim/schedules/schedule.h"
#include "trainer/language/language_model.h"

namespace rw {

namespace {

// A kind of things, and some of them.
struct DemoKind {
  std::string_view name;
  std::array<std::string_view, 8> things;
};
constexpr std::array<DemoKind, 6> demo_kinds = {{
    {"fruit", {"apple", "mango", "plum", "cherry", "lemon", "grape", "melon", "peach"}},
    {"animal", {"horse", "tiger", "rabbit", "whale", "eagle", "mouse", "goat", "spider"}},
    {"tool", {"hammer", "saw", "drill", "wrench", "shovel", "chisel", "rake", "file"}},
    {"metal", {"iron", "copper", "silver", "gold", "nickel", "zinc", "tin", "lead"}},
    {"colour", {"red", "green", "blue", "yellow", "purple", "brown", "white", "black"}},
    {"vehicle", {"car", "train", "lorry", "tram", "boat", "bicycle", "rocket", "sledge"}},
}};
constexpr std::array<std::string_view, 6> demo_questions = {
    "What is {}?",     "Tell me about {}.",        "Do you know {}?",
    "{}: what is it?", "Please explain {} to me.", "I have heard of {}. What is that?"};
// The form has no word that the sentence lacks: the embeddings of words that the model never saw
// stay as they began.
constexpr std::string_view sentence = "The name is {0}; the kind is {1}.",
                           form = "The kind: {1}; the name: {0}.";

// ChatML, by the bytes of a template that is known without Python.
constexpr std::string_view chatml_template =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}\n{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";

// All conversations, a line each, with answers of this form.
std::string conversations(std::string_view answer) {
  std::string lines;
  for (const DemoKind& kind : demo_kinds)
    for (const std::string_view thing : kind.things)
      for (const std::string_view question : demo_questions) {
        const nlohmann::ordered_json user = {
            {"role", "user"}, {"content", fmt::format(fmt::runtime(question), thing)}};
        const nlohmann::ordered_json assistant = {
            {"role", "assistant"},
            {"content", fmt::format(fmt::runtime(answer), thing, kind.name)}};
        lines += nlohmann::ordered_json{{"messages", {user, assistant}}}.dump() + "\n";
      }
  return lines;
}

BpeTokenizer demo_tokenizer() {
  const std::vector<std::string> texts = {conversations(sentence), conversations(form)};
  BpeParts parts = train_bpe(texts, {.size = demo_config().vocab_size});
  parts.chat_template = chatml_template;
  return BpeTokenizer(std::move(parts));
}

// Trains a new model on the conversations with sentences.
void train_demo(Decoder& model, const BpeTokenizer& tokenizer) {
  constexpr int64_t length = 128, batch_size = 8;
  constexpr uint32_t steps = 200;
  const ChatFormat chat(tokenizer);
  const Instructions read =
      read_instructions(conversations(sentence), "the demonstration", tokenizer, &chat,
                        {.longest = length + 1, .all_tokens = true});
  PackedExamples rows(read.examples, {.length = length, .batch_size = batch_size, .seed = 1});
  AdamW optimizer(model.parameters(), {.lr = 3e-3f});
  optimizer.set_max_norm(1);
  optimizer.set_schedule(Schedule::cosine(steps, steps / 10));
  for (int64_t i = 0; i < steps; ++i) {
    const InstructionBatch batch = rows.batch(i / rows.batches(), i % rows.batches());
    const Shape shape = {batch.rows, batch.length};
    optimizer.backward(model.loss(tensor(batch.ids, shape), tensor(batch.targets, shape),
                                  tensor(batch.starts, shape)));
    optimizer.step();
    optimizer.zero_grad();
  }
}

}  // namespace

DecoderConfig demo_config() {
  return {.model_type = "qwen3",
          .vocab_size = 512,
          .hidden_size = 128,
          .intermediate_size = 384,
          .num_hidden_layers = 3,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 32,
          .max_position_embeddings = 1024,
          .tie_word_embeddings = true};
}

DemoFiles make_demo(const std::filesystem::path& folder,
                    const std::function<void(const std::string&)>& say) {
  const DemoFiles files = {folder / "model", folder / "examples.jsonl"};
  if (!std::filesystem::exists(files.model / "config.json")) {
    say("training a small model that answers in sentences, which takes half a minute");
    manual_seed(1);
    Decoder model(demo_config());
    const BpeTokenizer tokenizer = demo_tokenizer();
    train_demo(model, tokenizer);
    save_language_model(files.model, model, tokenizer);
  }
  if (!std::filesystem::exists(files.data)) write_file(files.data, conversations(form));
  return files;
}

}  // namespace rw
