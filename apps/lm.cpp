// Language models of Llama's kind: trains them, continues texts, measures them, and converts their
// files between Hugging Face's and llama.cpp's.
#include <CLI/CLI.hpp>

#include "apps/lm/commands.h"
#include "data/tokenizers/text_splitter.h"

int main(int argc, char** argv) {
  CLI::App app("Language models: Llama, Mistral, SmolLM2, Qwen and Gemma.");
  app.require_subcommand(1);
  app.footer("Texts are cut into words by the letters of Unicode " + rw::unicode_of_patterns() +
             ", which the ICU library knows.");
  rw::LmTrain train;
  train.add_to(*app.add_subcommand("train", "train a new model on text, or train one further"));
  rw::LmGenerate generate;
  CLI::App& text = *app.add_subcommand("generate", "continue a text, or answer a message");
  generate.add_to(text);
  rw::LmPerplexity perplexity;
  CLI::App& measure = *app.add_subcommand("perplexity", "measure how well a model predicts a text");
  perplexity.add_to(measure);
  rw::LmConvert convert;
  CLI::App& rewrite = *app.add_subcommand("convert", "write a model in another format");
  convert.add_to(rewrite);
  return rw::run_program(app, argc, argv, [&] {
    if (text)
      generate.run();
    else if (measure)
      perplexity.run();
    else if (rewrite)
      convert.run();
    else
      train.run();
  });
}
