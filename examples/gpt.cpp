// Trains a small GPT on the bytes of a text, and lets it write: every byte predicts the next one;
// generation keeps the keys and values of earlier ones. Usage: gpt [DEVICE] [TEXT FILE...]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int64_t length = 64, batch = 8, steps = 120;

std::vector<int32_t> bytes_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// All documents as one row of bytes, with a line for each sentence.
std::vector<int32_t> read_bytes_of(std::vector<std::filesystem::path> files) {
  if (files.empty()) files = rw::default_text_files();  // licences, which every Debian has
  std::string text;
  for (const rw::Document& document : rw::read_documents(files))
    for (const std::string& sentence : document) text += sentence + "\n";
  return bytes_of(text);
}

// A sequence of bytes from each of the places, shifted by `shift`.
rw::Tensor runs(const std::vector<int32_t>& bytes, const std::vector<size_t>& places, int shift) {
  std::vector<int32_t> ids;
  for (const size_t place : places) {
    const auto first = bytes.begin() + static_cast<int64_t>(place) + shift;
    ids.insert(ids.end(), first, first + length);
  }
  return rw::tensor(ids, {batch, length});
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  const std::vector<int32_t> bytes = read_bytes_of({argv + std::min(argc, 2), argv + argc});
  rw::GptLMHeadModel model({.vocab_size = 256,
                            .n_positions = 2 * length,
                            .n_embd = 96,
                            .n_layer = 2,
                            .n_head = 4,
                            .resid_pdrop = 0,
                            .embd_pdrop = 0,
                            .attn_pdrop = 0});
  rw::AdamW optimizer(rw::decay_groups(model.parameters(), 0.01f), {.lr = 4e-3f});
  optimizer.set_schedule(rw::Schedule::cosine(steps, 10));
  optimizer.set_max_norm(1);

  float first = 0, last = 0;
  size_t place = 0;
  for (int64_t i = 0; i < steps; ++i) {
    std::vector<size_t> places;
    for (int64_t n = 0; n < batch; ++n)  // by steps of a prime number: all over the text
      places.push_back(place = (place + 7919) % (bytes.size() - length - 1));
    const rw::Tensor loss = model.loss(runs(bytes, places, 0), runs(bytes, places, 1));
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (i % 30 == 0 || i == steps - 1)
      std::printf("step %3ld  loss %.3f\n", long(i), last = loss.item());
    if (i == 0) first = last;
  }

  const std::vector<int32_t> start = bytes_of("The license ");
  const rw::Tensor prompt = rw::tensor(start, {1, int64_t(start.size())});
  const rw::Tensor text = model.generate(
      prompt, {.max_new_tokens = 100, .sample = {.temperature = 0.5f, .top_p = 0.9f}});
  for (const int32_t byte : text.to_ints()) std::putchar(byte);
  std::putchar('\n');
  return last < first - 2 ? 0 : 1;
}
