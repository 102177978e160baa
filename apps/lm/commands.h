// The commands of the program for language models.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace rw {

std::string default_lm_folder();  // in the cache, which need not be there

// Each adds the options of a command to `app`, and returns what runs it.
std::function<void()> add_train(CLI::App& app);       // trains a model, from scratch or from files
std::function<void()> add_generate(CLI::App& app);    // continues a prompt, or answers it
std::function<void()> add_perplexity(CLI::App& app);  // measures how well a model predicts a text
std::function<void()> add_convert(CLI::App& app);     // rewrites a model in another file format

}  // namespace rw
