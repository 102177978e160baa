// Trains a small GPT on text, and lets it write: every token predicts the next one; generation
// keeps keys and values of earlier tokens. Usage: gpt [DEVICE] [TEXT FILE...]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int64_t length = 32, batch = 8, steps = 80;

// All documents as one row of tokens.
std::vector<int32_t> tokens_of(const std::vector<rw::Document>& documents,
                               const rw::Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  for (const rw::Document& document : documents)
    for (const std::string& sentence : document) {
      const std::vector<int32_t> ids = tokenizer.ids(sentence);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
  return tokens;
}

// A run of tokens from each of the places, moved on by `shift`.
rw::Tensor runs(const std::vector<int32_t>& tokens, const std::vector<size_t>& places, int shift) {
  std::vector<int32_t> ids;
  for (const size_t place : places)
    ids.insert(ids.end(), tokens.begin() + long(place) + shift,
               tokens.begin() + long(place) + shift + length);
  return rw::tensor(ids, {batch, length});
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "vulkan"));
  rw::manual_seed(1);
  std::vector<std::filesystem::path> files(argv + std::min(argc, 2), argv + argc);
  if (files.empty()) files = rw::default_text_files();  // licences, which every Debian has
  const std::vector<rw::Document> documents = rw::read_documents(files);
  const rw::Tokenizer tokenizer(rw::train_vocabulary(documents, {.size = 1000}));
  const std::vector<int32_t> tokens = tokens_of(documents, tokenizer);

  rw::GptLMHeadModel model({.vocab_size = tokenizer.vocabulary().size(),
                            .n_positions = 2 * length,
                            .n_embd = 128,
                            .n_layer = 2,
                            .n_head = 4,
                            .resid_pdrop = 0,
                            .embd_pdrop = 0,
                            .attn_pdrop = 0});
  rw::AdamW optimizer(rw::decay_groups(model.parameters(), 0.01f), {.lr = 3e-3f});
  optimizer.set_schedule(rw::Schedule::cosine(steps, 8));
  optimizer.set_max_norm(1);

  float first = 0, last = 0;
  size_t place = 0;
  for (int64_t i = 0; i < steps; ++i) {
    std::vector<size_t> places;
    for (int64_t n = 0; n < batch; ++n)  // by steps of a prime number: all over the text
      places.push_back(place = (place + 7919) % (tokens.size() - length - 1));
    const rw::Tensor loss = model.loss(runs(tokens, places, 0), runs(tokens, places, 1));
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (i % 20 == 0 || i == steps - 1)
      std::printf("step %2ld  loss %.3f\n", long(i), last = loss.item());
    if (i == 0) first = last;
  }

  const std::vector<int32_t> start = tokenizer.ids("this program is");
  const rw::Tensor prompt = rw::tensor(start, {1, int64_t(start.size())});
  const rw::Tensor text = model.generate(prompt, {.max_new_tokens = 40, .temperature = 0.7f});
  std::printf("%s\n", tokenizer.decode(text.to_ints()).c_str());
  return last < first - 1.5f ? 0 : 1;
}
