// Prints hidden states of a published BERT for tests/run/real_models.py: for each text a line with
// the number of its tokens, and every STEP-th element of the first, the middle and the last token's
// state. Usage: bert_states FOLDER STEP TEXT...
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "backends/open.h"
#include "io/models/bert.h"
#include "ops/operators.h"
#include "trainer/language/bert_tokenizer.h"

using namespace rw;

namespace {

void print_states(BertModel& model, const Tokenizer& tokenizer, const std::string& text,
                  int64_t step) {
  const std::vector<int32_t> ids = tokenizer.encode(text).ids;
  const int64_t length = std::ssize(ids), size = model.config().hidden_size;
  const std::vector<float> states = model.forward({.ids = tensor(ids, {1, length})}).to_vector();
  fmt::print("{}", length);
  for (const int64_t token : {int64_t{0}, length / 2, length - 1})
    for (int64_t at = 0; at < size; at += step)
      fmt::print(" {:.7g}", states[static_cast<size_t>(token * size + at)]);
  fmt::print("\n");
}

}  // namespace

int main(int count, char** words) try {
  if (count < 4) return EXIT_FAILURE;
  set_default_device(open_backend("cpu"));
  const std::filesystem::path folder = words[1];
  const Tokenizer tokenizer = read_bert_tokenizer(folder);
  BertModel model(read_bert_config(folder / "config.json"));
  load_bert(folder / "model.safetensors", model);
  model.eval();
  const NoGrad guard;
  for (int i = 3; i < count; ++i) print_states(model, tokenizer, words[i], std::stoi(words[2]));
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  fmt::print(stderr, "bert_states: {}\n", error.what());
  return EXIT_FAILURE;
}
