#include "trainer/program/shared_options.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"
#include "core/files/file.h"

namespace rw {

namespace {

struct SharedOption {
  const char *name, *text;
};

constexpr SharedOption shared_options[] = {
    {"--adapter", "the folder of an adapter of the model (LoRA), as PEFT has them"},
    {"--batch", "samples per step"},
    {"--chat-format",
     "chatml, qwen3, llama3, llama3.1, gemma or llama2, in place of the model's chat template"},
    {"--checkpoint-every", "the number of layers, blocks or stages in a segment"},
    {"--classes", "with --plan: the number of classes"},
    {"--config", "a shape, in place of a model"},
    {"--data", "the training data"},
    {"--device",
     "the device to use: cpu, vulkan, vulkan:NAME (a part of it), vulkan:INDEX, vulkan:uuid=... or "
     "auto (a GPU, or else cpu)"},
    {"--dora", "train the lengths of the weights' rows apart from their directions (DoRA)"},
    {"--dry", "measure nothing"},
    {"--dtype", "the dtype of activations and matrix products: f16, bf16 or f32"},
    {"--epochs", "passes over the data"},
    {"--eval", "only evaluate the weights given with --load"},
    {"--front", "list all ways that are worth having, by time and bytes"},
    {"--host-memory", "the host memory that may be taken, as 64GiB"},
    {"--json", "print one JSON document"},
    {"--keep-8-bits",
     "plans may keep values in 8 bits until backward, which makes gradients approximate"},
    {"--layers", "the number of layers"},
    {"--load", "start from the weights in this safetensors file"},
    {"--memory", "the device memory that may be taken, as 8GiB"},
    {"--model", "the model"},
    {"--only", "only those whose names contain this text"},
    {"--profile",
     "predict this device: a saved profile, or the name of one that comes with Rewind"},
    {"--rank", "the rank of the adapters"},
    {"--rounds", "the number of measurements"},
    {"--row", "the rows to measure"},
    {"--save", "write the trained model here"},
    {"--seed", "the seed of all that is random"},
    {"--seq", "the most tokens per text"},
    {"--shard",
     "what each rank of mpirun keeps only a part of, instead of all of it: none, states or "
     "parameters"},
    {"--share", "parts of the plain peak that are budgets"},
    {"--steps", "steps to take"},
    {"--test-share", "the share of the data to test with"},
    {"--tokenizer", "the tokenizer: tokenizer.json, or a folder or FILE.gguf that has one"},
    {"--top", "the number of answers to show"},
    {"--type", "the type of the matrices"},
    {"--vocab-size", "the most tokens of a vocabulary that is made from the text"},
};

}  // namespace

std::string shared_text(std::string_view name, const std::string& more) {
  const auto* row = std::ranges::find(shared_options, name, &SharedOption::name);
  check(row != std::end(shared_options), "options", "the table must have {}, got an unknown name",
        name);
  return more.empty() ? row->text : std::string(row->text) + ": " + more;
}

namespace {

const CLI::App* running = nullptr;

}  // namespace

bool has_option(const std::string& name) {
  return running != nullptr && running->get_option_no_throw(name) != nullptr;
}

bool is_given(const std::string& name) {
  return has_option(name) && running->get_option(name)->count() > 0;
}

void set_running_command(const CLI::App* command) {
  running = command;
}

CLI::Option* must_be_writable(CLI::Option* option) {
  return option->check([](const std::string& path) {
    try {
      check_can_write(path);
      return std::string();
    } catch (const FileError& error) {
      return std::string(error.what());
    }
  });
}

CLI::Option* must_be_positive(CLI::Option* option) {
  return option->check([](const std::string& text) {
    const bool is_positive = std::strtod(text.c_str(), nullptr) > 0;
    return is_positive ? std::string() : fmt::format("must be positive, got {}", text);
  });
}

}  // namespace rw
