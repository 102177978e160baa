// Writes the batches that `lora` trains on, for check_python.py.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "backends/open.h"
#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "data/chat/packed_examples.h"
#include "io/formats/safetensors.h"
#include "trainer/language/language_model.h"

using namespace rw;

namespace {

void write(const std::vector<std::string>& words) {
  const auto number = [&](size_t i) { return std::stoll(words.at(i)); };
  const DecoderFiles files(words.at(0));
  const BpeTokenizer tokenizer = read_tokenizer(files);
  const ChatFormat chat(tokenizer, "");
  const int64_t length = number(2);
  Instructions read = read_instructions(std::filesystem::path(words[1]), tokenizer,
                                        tokenizer.parts().chat_template.empty() ? nullptr : &chat,
                                        {.longest = length + 1});
  const auto seed = static_cast<uint64_t>(number(4));
  split_off(read.examples, 0.05, seed);
  PackedExamples rows(read.examples, {.length = length, .batch_size = number(3), .seed = seed});
  std::vector<NamedTensor> tensors;
  for (int64_t step = 0; step < number(5); ++step) {
    const InstructionBatch batch = rows.batch(step / rows.batches(), step % rows.batches());
    const Shape shape = {batch.rows, batch.length};
    tensors.push_back({fmt::format("ids.{}", step), tensor(batch.ids, shape)});
    tensors.push_back({fmt::format("targets.{}", step), tensor(batch.targets, shape)});
    tensors.push_back({fmt::format("starts.{}", step), tensor(batch.starts, shape)});
  }
  write_safetensors(words.at(6), tensors);
}

}  // namespace

// Usage: lora_rows MODEL DATA SEQ BATCH SEED STEPS OUT.safetensors
int main(int count, char** words) {
  try {
    set_default_device(open_backend("cpu"));
    write({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "lora_rows: {}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
