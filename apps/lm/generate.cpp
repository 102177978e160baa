#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <utility>

#include "apps/lm/commands.h"
#include "backends/open.h"
#include "core/base/rng.h"
#include "data/base/files.h"
#include "data/chat/chat_format.h"
#include "data/text/text.h"
#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "ops/autocast.h"
#include "trainer/language/language_model.h"
#include "trainer/language/text_generation.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

namespace rw {

// How texts are continued, as options.
struct LmSampling {
  int64_t tokens = 128;
  SampleOptions sample = {.temperature = 0.8f, .top_p = 0.95f};
  uint64_t seed = 1;
  std::vector<std::string> stop;

  void add_to(CLI::App& app);
};

// Continues a prompt, or answers it.
struct LmGenerate {
  DeviceOptions device = {.dtype = ""};
  LmSampling sampling;
  std::string prompt, model = default_lm_folder();
  bool chat = false, no_cache = false;
  std::string adapter, tokenizer, chat_format, system;

  void add_to(CLI::App& app);
  void run();
};

// How well a model predicts a text.
struct LmPerplexity {
  DeviceOptions device = {.dtype = ""};
  std::string model = default_lm_folder(), adapter, tokenizer;
  std::vector<std::string> data;
  int64_t length = 512;

  void add_to(CLI::App& app);
  void run() const;
};

// Rewrites a model in another file format.
struct LmConvert {
  std::string from, to, type, adapter, tokenizer;

  void add_to(CLI::App& app);
  void run() const;
};

void LmSampling::add_to(CLI::App& app) {
  app.add_option("--max-new-tokens", tokens, "the most tokens to draw")->capture_default_str();
  app.add_option("--temperature", sample.temperature,
                 "the logits are divided by it; 0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", sample.top_k, "draw only from the k likeliest tokens; 0: from all")
      ->capture_default_str();
  app.add_option("--top-p", sample.top_p,
                 "draw only from the likeliest tokens that have this probability together")
      ->capture_default_str();
  app.add_option("--min-p", sample.min_p,
                 "draw only from tokens at least this share as likely as the likeliest")
      ->capture_default_str();
  app.add_option("--repetition-penalty", sample.repetition_penalty,
                 "a factor that makes tokens of the text so far less likely; 1: none")
      ->capture_default_str();
  shared_option(app, "--seed", seed, "the tokens that are drawn")->capture_default_str();
  app.add_option("--stop", stop, "a string that ends the text; may be given again");
}

void LmGenerate::add_to(CLI::App& app) {
  app.add_option("prompt", prompt, "the text to continue, or with --chat the message to answer")
      ->required();
  shared_option(app, "--model", model, "a folder or FILE.gguf")->capture_default_str();
  shared_option(app, "--adapter", adapter);
  shared_option(app, "--tokenizer", tokenizer,
                "in place of the model's own: tokenizer.json, or a folder or FILE.gguf");
  app.add_flag("--chat", chat,
               "answer the prompt as a message, by the model's chat template, which python3 runs "
               "(package python3-jinja2)");
  shared_option(app, "--chat-format", chat_format);
  app.add_option("--system", system, "a system message before the prompt")->needs("--chat");
  app.add_flag("--no-cache", no_cache, "read the whole text again for each token");
  sampling.add_to(app);
  device.add_to(app);
}

namespace {

// Opens a model for reading, in the dtype of --dtype or in that of its files.
LanguageModel opened_model(const DeviceOptions& device, const std::string& model,
                           const std::string& adapter, const std::string& tokenizer) {
  const DecoderFiles files(model);
  LanguageModel opened = LanguageModel::open(
      files, device.dtype.empty() ? files.working_dtype() : device.parsed_dtype(), tokenizer);
  if (!adapter.empty()) load_adapter(adapter, *opened.model);
  opened.model->eval();  // without the adapter's dropout
  return opened;
}

// In what a model computes: "bf16", or "bf16, with weights in blocks".
std::string precision_of(const Decoder& model) {
  return std::string(name(model.dtype())) + (model.head_blocks() ? ", with weights in blocks" : "");
}

// The input of the model, and with --chat also the ends of its answer.
struct Prompt {
  std::vector<int32_t> tokens, end_tokens;
  std::vector<std::string> stop;
};

Prompt prompt_of(const LmGenerate& o, const BpeTokenizer& tokenizer) {
  if (!o.chat) return {tokenizer.encode(o.prompt, true, true, false), {}, o.sampling.stop};
  const ChatFormat format(tokenizer, o.chat_format);
  std::vector<ChatMessage> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  messages.push_back({"user", o.prompt});
  Prompt prompt = {tokenizer.encode(format.render(messages)), {}, o.sampling.stop};
  if (const auto end = tokenizer.id(format.end_of_turn()))
    prompt.end_tokens.push_back(*end);
  else if (!format.end_of_turn().empty())
    prompt.stop.push_back(format.end_of_turn());
  return prompt;
}

}  // namespace

void LmGenerate::run() {
  if (model == default_lm_folder()) {
    cache_directory();  // it must be this user's alone
    check<FileError>(std::filesystem::exists(model), "generate",
                     "there is no model in '{}'; train one first, by lm train", model);
  }
  device.open();
  const LanguageModel opened = opened_model(device, model, adapter, tokenizer);
  const Prompt read = prompt_of(*this, opened.tokenizer);
  Generator generator(sampling.seed);
  std::string before = chat ? "" : prompt;  // comes with the first text, and not before an error
  TextOptions options{.generate = {.max_new_tokens = sampling.tokens,
                                   .sample = sampling.sample,
                                   .use_cache = !no_cache},
                      .stop = read.stop,
                      .end_tokens = read.end_tokens,
                      .on_text = [&](std::string_view text) {
                        fmt::print("{}{}", std::exchange(before, ""), text);
                        std::fflush(stdout);
                      }};
  options.generate.sample.generator = &generator;
  const GeneratedText text = continue_text(*opened.model, opened.tokenizer, read.tokens, options);
  fmt::print("{}\n", before);
  const MemoryReport memory = default_device()->memory_report();
  fmt::print(
      stderr,
      "\n{} tokens read in {:.2f} s ({:.1f}/s), {} more in {:.2f} s ({:.1f}/s); {:.1f} MiB "
      "at most, in {} on {}\n",
      text.prompt_tokens, text.first_seconds,
      static_cast<double>(text.prompt_tokens) / text.first_seconds,
      std::max<int64_t>(text.tokens - 1, 0), text.seconds,
      static_cast<double>(std::max<int64_t>(text.tokens - 1, 0)) / std::max(text.seconds, 1e-9),
      static_cast<double>(memory.peak) / (1 << 20), precision_of(*opened.model),
      default_device()->info().name);
}

void LmPerplexity::add_to(CLI::App& app) {
  shared_option(app, "--data", data, "text files, joined");
  app.get_option("--data")->required();
  shared_option(app, "--model", model, "a folder or FILE.gguf")->capture_default_str();
  shared_option(app, "--adapter", adapter);
  shared_option(app, "--tokenizer", tokenizer,
                "in place of the model's own: tokenizer.json, or a folder or FILE.gguf");
  app.add_option("--context", length, "the tokens of a window, of which the second half counts")
      ->capture_default_str();
  device.add_to(app);
}

void LmPerplexity::run() const {
  device.open();
  const LanguageModel opened = opened_model(device, model, adapter, tokenizer);
  const std::vector<std::filesystem::path> files(data.begin(), data.end());
  std::string text;
  for (const std::string& part : read_texts(files)) text += part;
  const bool begins = opened.tokenizer.parts().add_bos;
  const std::vector<int32_t> ids = opened.tokenizer.encode(text, true, true, false);
  check_tokens(ids, opened.tokenizer, opened.model->config().vocab_size);
  const Perplexity found =
      perplexity(*opened.model, ids, length, begins ? opened.tokenizer.bos() : std::nullopt);
  fmt::print("perplexity {:.4f} over {} tokens of {}, in windows of {}, in {}\n", found.value,
             found.tokens, ids.size(), length, precision_of(*opened.model));
}

void LmConvert::add_to(CLI::App& app) {
  app.add_option("from", from, "a folder or FILE.gguf")->required();
  app.add_option("to", to, "a folder or FILE.gguf")->required();
  shared_option(
      app, "--type", type,
      "f32, f16 or bf16, in GGUF also q8_0, q6_k, q5_k, q4_k, q5_1, q5_0, q4_1 or q4_0, in a "
      "folder also nf4, bitsandbytes' "
      "(default: that of `from`, and f16 for quantised types)");
  shared_option(app, "--adapter", adapter, "it becomes part of the weights");
  shared_option(app, "--tokenizer", tokenizer,
                "in place of the model's own: tokenizer.json, or a folder or FILE.gguf");
}

// The dtypes have all values of the files, so only one tensor at a time is rounded, as it is
// written. Vectors are small, and f32 in GGUF, where those of Gemma are one more than in a folder.
// Sums of weights and adapters are rounded only then, too.
void LmConvert::run() const {
  set_default_device(open_backend("cpu"));
  const DecoderFiles files(from);
  const DType stored = files.stored_dtype();
  const LanguageModel opened =
      adapter.empty() ? LanguageModel::open_floats(files, stored, DType::f32, tokenizer)
                      : LanguageModel::open_merged(files, adapter, tokenizer);
  const std::string written = !type.empty()          ? type
                              : files.is_quantised() ? "f16"
                                                     : std::string(name(stored));
  save_language_model(to, *opened.model, opened.tokenizer, written);
  fmt::print("{}: {} parameters of {}, {} tokens\n", to, opened.model->parameter_count(), written,
             opened.tokenizer.size());
}

std::function<void()> add_generate(CLI::App& app) {
  return add_command<LmGenerate>(app);
}

std::function<void()> add_perplexity(CLI::App& app) {
  return add_command<LmPerplexity>(app);
}

std::function<void()> add_convert(CLI::App& app) {
  return add_command<LmConvert>(app);
}

}  // namespace rw
