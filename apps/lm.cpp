// Language models of Llama's kind: trains them, continues texts, measures them, and converts their
// files between Hugging Face's and llama.cpp's.
#include <CLI/CLI.hpp>

#include "apps/lm/commands.h"
#include "data/tokenizers/text_splitter.h"
#include "trainer/program/program.h"

int main(int argc, char** argv) {
  CLI::App app("Language models: Llama, Mistral, SmolLM2, Qwen and Gemma.");
  app.require_subcommand(1);
  app.footer("Texts are cut into words by the letters of Unicode " + rw::unicode_of_patterns() +
             ", which the ICU library knows.");
  const auto train = rw::add_train(
      *app.add_subcommand("train", "train a new model on text, or train one further"));
  CLI::App& text = *app.add_subcommand("generate", "continue a text, or answer a message");
  const auto generate = rw::add_generate(text);
  CLI::App& measure = *app.add_subcommand("perplexity", "measure how well a model predicts a text");
  const auto perplexity = rw::add_perplexity(measure);
  CLI::App& rewrite = *app.add_subcommand("convert", "write a model in another format");
  const auto convert = rw::add_convert(rewrite);
  return rw::run_program(app, argc, argv, [&] {
    if (text)
      generate();
    else if (measure)
      perplexity();
    else if (rewrite)
      convert();
    else
      train();
  });
}
