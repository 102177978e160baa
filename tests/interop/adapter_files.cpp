// Makes, trains and runs adapters for check_adapters.py, which holds them against PEFT.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/open.h"
#include "io/formats/npy.h"
#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "optim/adam.h"
#include "planner/memory.h"

using namespace rw;

namespace {

using Words = std::vector<std::string>;

std::unique_ptr<Decoder> load(const std::string& path) {
  auto model = std::make_unique<Decoder>(read_decoder_config(path));
  load_decoder(path, *model);
  return model;
}

// Two texts of 33 tokens, other ones in each of four steps, as in check_adapters.py.
Tensor texts(int64_t step, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < 2 * 33; ++i)
    ids.push_back(static_cast<int32_t>((i * i + 7 * i + 13 * (step % 4)) % vocabulary));
  return tensor(ids, {2, 33});
}

// A random model whose heads have their own positions in files of llama.
void make(const std::string& type, const std::string& folder) {
  manual_seed(1);
  const Decoder model({.model_type = type,
                       .vocab_size = 97,
                       .hidden_size = 64,
                       .intermediate_size = 96,
                       .num_hidden_layers = 2,
                       .num_attention_heads = 4,
                       .num_key_value_heads = 2,
                       .head_dim = type == "qwen3" ? 32 : 16,
                       .max_position_embeddings = 64,
                       .tie_word_embeddings = type == "qwen3",
                       .initializer_range = 0.1});
  save_decoder(folder, model);
}

// Takes steps of AdamW with the adapter `from`, or with a new one of a form, and prints the losses;
// within one number of memory if it is given.
void train(const Words& words) {
  const auto memory = words.size() > 6 ? std::make_unique<Memory>(words[6]) : nullptr;
  const std::string &from = words.at(2), &form = from;
  const auto model = load(words.at(1));
  manual_seed(2);
  LoraOptions options{
      .rank = 8, .alpha = 16, .rank_stabilized = form == "rslora", .dora = form == "dora"};
  if (form == "pattern") {
    options.rank_pattern = {{"q_proj", 3}, {"model.layers.1.mlp.up_proj", 5}};
    options.alpha_pattern = {{"v_proj", 40}};
  }
  if (form == "lora" || form == "rslora" || form == "dora" || form == "pattern")
    add_lora(*model, options);
  else
    load_adapter(from, *model);
  AdamW optimizer(model->parameters(), {.lr = std::stof(words.at(5)), .weight_decay = 0});
  for (int64_t step = 0; step < std::stoll(words.at(4)); ++step) {
    const Tensor ids = texts(step, model->config().vocab_size);
    const Tensor loss =
        model->loss(contiguous(slice(ids, 1, 0, 32)), contiguous(slice(ids, 1, 1, 33)));
    fmt::print("{}\n", loss.item());
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  save_adapter(words.at(3), *model, {.base_model = words.at(1)});
}

void run(const Words& words) {
  const std::string& what = words.at(0);
  if (what == "make") return make(words.at(1), words.at(2));
  if (what == "train") return train(words);
  const auto model = load(words.at(1));
  if (words.at(2) != "none") load_adapter(words[2], *model);
  model->eval();
  const NoGrad guard;
  if (what == "logits")
    return save_npy(words.at(3), (*model)(texts(0, model->config().vocab_size)));
  if (what == "gguf") return save_adapter_gguf(words.at(3), *model);
  check(what == "merge", "adapter_files", "unknown command {}", what);
  merge_lora(*model);
  save_decoder(words.at(3), *model);
}

}  // namespace

// Usage: adapter_files make TYPE FOLDER
//        | train MODEL lora|rslora|dora|ADAPTER FOLDER STEPS RATE [MEMORY]
//        | logits MODEL none|ADAPTER OUT.npy | merge MODEL ADAPTER FOLDER
//        | gguf MODEL ADAPTER OUT.gguf
int main(int count, char** words) {
  try {
    set_default_device(open_backend("cpu"));
    run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "adapter_files: {}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
