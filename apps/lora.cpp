// Fine-tunes language models on instructions and answers, by low-rank adapters.
#include <CLI/CLI.hpp>

#include "apps/lora/options.h"
#include "trainer/program/program.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Fine-tunes a language model on instructions and answers, by low-rank adapters (LoRA). "
      "Without --model and --data, a small model that it makes, which learns to answer in a form.");
  const auto run = rw::add_command<rw::LoraTrain>(app);
  return rw::run_program(app, argc, argv, run);
}
