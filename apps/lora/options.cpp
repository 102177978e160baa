#include "apps/lora/options.h"

#include <CLI/CLI.hpp>

#include "core/files/cache.h"
#include "io/models/decoder.h"
#include "trainer/program/shared_options.h"

namespace rw {

std::string default_adapter_folder() {
  return (user_cache_directory() / "lora").string();
}

void LoraTrain::add_to(CLI::App& app) {
  shared_option(app, "--model", model, "a folder or FILE.gguf, whose weights stay as they are");
  shared_option(app, "--tokenizer", tokenizer,
                "in place of the model's own: tokenizer.json, or a folder or FILE.gguf");
  shared_option(app, "--data", data,
                "a JSON object a line: with `messages`, with `prompt` and `completion`, or with "
                "`text`");
  app.add_option("--validation", validation, "a file of such examples to validate with");
  shared_option(app, "--test-share", test_share, "without --validation")->capture_default_str();
  shared_option(app, "--chat-format", chat_format);
  app.add_flag("--all-tokens", all_tokens, "learn prompts, too, and not only answers");
  shared_option(app, "--seq", length, "of a row, which holds several texts")->capture_default_str();
  app.add_flag("--refuse-long", refuse_long,
               "an example of more tokens is an error; otherwise its end is cut off");
  app.add_flag("--no-packing", no_packing, "one example a row");
  shared_option(app, "--rank", adapter.rank)->capture_default_str();
  app.add_option("--alpha", adapter.alpha, "adapters count alpha / rank")->capture_default_str();
  app.add_option("--adapter-dropout", adapter.dropout, "the dropout of their inputs")
      ->capture_default_str();
  app.add_option("--target", adapter.target_modules,
                 "the layers that get one, by the end of their names, as q_proj; may be given "
                 "again (default: all linear layers but the head)");
  app.add_flag("--rslora", adapter.rank_stabilized, "they count alpha / sqrt(rank) (rsLoRA)");
  shared_flag(app, "--dora", adapter.dora);
  shared_option(app, "--steps", steps, "instead of --epochs");
  shared_option(app, "--epochs", epochs,
                "default: the usual number for so many rows, which the run prints");
  shared_option(app, "--save", save, "the adapter, as a folder of PEFT's")->capture_default_str();
  must_be_writable(app.add_option(
      "--merge", merge,
      "write the model with the adapter in its weights, in f16 if they are quantised: "
      "a folder, or FILE.gguf"));
  app.add_option("--prompt", prompt,
                 "a message to answer before and after training (default: one of the validation)");
  update.add_to(app);
  TrainerOptions::add_to(app);
  CLI::Option* const shape =
      shared_option(app, "--config", config, "to plan for, a preset as llama-3.1-8b")
          ->needs("--plan")
          ->excludes("--model");
  shared_option(app, "--type", type, "those of --config")
      ->needs(shape)
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q4_k", "q4_0", "nf4"}))
      ->capture_default_str();
}

void LoraTrain::check_numbers() const {
  TrainerOptions::check_numbers();
  check(length > 0, "options", "--seq must be positive, got {}", length);
  check(test_share > 0 && test_share < 1, "options", "--test-share must be in (0, 1), got {}",
        test_share);
  adapter.check();
}

PackedExamplesOptions LoraTrain::rows(int64_t batch_size, bool is_training) const {
  return {.length = length,
          .batch_size = batch_size,
          .pack = !no_packing,
          .shuffle = is_training,
          .seed = seed};
}

bool LoraTrain::saves() const {
  return !save.empty() && (!is_demo_ || command->count("--save") > 0);
}

}  // namespace rw
