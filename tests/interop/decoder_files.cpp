// Reads and writes decoders for check_decoder_files.py, which holds them against other programs.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/open.h"
#include "io/formats/npy.h"
#include "io/formats/safetensors.h"
#include "io/models/decoder.h"

using namespace rw;

namespace {

std::unique_ptr<Decoder> load(const std::string& path) {
  auto model = std::make_unique<Decoder>(read_decoder_config(path));
  load_decoder(path, *model);
  model->eval();
  return model;
}

// With its quantised matrices in blocks.
std::unique_ptr<Decoder> load_in_blocks(const std::string& path) {
  const DecoderFiles files(path);
  check(files.is_quantised(), "decoder_files", "'{}' must be quantised", path);
  auto model = make_decoder(files.config(), files.types(), DType::f32);
  files.load(*model);
  model->eval();
  return model;
}

Tensor tokens(const std::vector<std::string>& words, size_t first) {
  std::vector<int32_t> ids;
  for (size_t i = first; i < words.size(); ++i) ids.push_back(std::stoi(words[i]));
  return tensor(ids, {1, std::ssize(ids)});
}

// Where `to` is a folder, parts of 1 MB; else a file of `type` with the tokenizer of another.
void convert(const std::string& from, const std::string& to, const std::string& type,
             const std::string& tokenizer) {
  const auto model = load(from);
  if (!to.ends_with(".gguf"))
    return save_decoder(to, *model,
                        {.nf4 = type == "nf4",
                         .shard_bytes = 1'000'000,
                         .tokens = DecoderFiles(from).special_tokens()});
  GgufMetadata more;
  if (!tokenizer.empty()) more = GgufFile(tokenizer).metadata();
  const GgufTypeInfo* info = find_gguf_type(type);
  check(info != nullptr, "decoder_files", "no type of GGUF is called {}", type);
  save_decoder_gguf(to, *model, static_cast<GgufType>(info->number), more);
}

// All tensors of a GGUF file as f32.
void dequantise(const std::string& from, const std::string& to) {
  const GgufFile file(from);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, stored] : file.tensors()) {
    tensors.push_back({name, empty(stored.shape)});
    file.read(name, tensors.back().tensor);
  }
  write_safetensors(to, tensors);
}

void run(const std::vector<std::string>& words) {
  const std::string& what = words.at(0);
  if (what == "convert")
    return convert(words.at(1), words.at(2), words.size() > 3 ? words[3] : "f32",
                   words.size() > 4 ? words[4] : "");
  if (what == "dequantise") return dequantise(words.at(1), words.at(2));
  const NoGrad guard;
  const auto model = what == "blocks" ? load_in_blocks(words.at(1)) : load(words.at(1));
  if (what == "logits" || what == "blocks")
    return save_npy(words.at(2), (*model)(tokens(words, 3)));
  check(what == "greedy", "decoder_files", "unknown command {}", what);
  const Tensor prompt = tokens(words, 3);
  const std::vector<int32_t> all = model
                                       ->generate(prompt, {.max_new_tokens = std::stoi(words.at(2)),
                                                           .sample = {.temperature = 0}})
                                       .to_ints();
  for (size_t i = static_cast<size_t>(prompt.numel()); i < all.size(); ++i)
    fmt::print("{} ", all[i]);
  fmt::print("\n");
}

}  // namespace

// Usage: decoder_files logits MODEL OUT.npy TOKEN... | blocks MODEL OUT.npy TOKEN... | greedy MODEL
// COUNT TOKEN...
//        | convert MODEL FOLDER [nf4] | convert MODEL OUT.gguf [TYPE [TOKENIZER.gguf]]
//        | dequantise FILE.gguf OUT.safetensors
int main(int count, char** words) {
  try {
    set_default_device(open_backend("cpu"));
    run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "decoder_files: {}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
