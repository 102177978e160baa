// Pre-trains a tiny BERT: makes a vocabulary from text, masks tokens, and predicts them. The whole
// program is `./rewind bert`, apps/bert.cpp. Usage: bert [DEVICE] [TEXT FILE...]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

rw::BertInput input_of(const rw::TextBatch& batch) {
  return {.ids = rw::tensor(batch.ids, {batch.rows, batch.length}),
          .lengths = rw::tensor(batch.lengths, {batch.rows})};
}

// The places of masked tokens in the batch, and the tokens that stood there.
struct Masked {
  std::vector<int32_t> positions, tokens;

  explicit Masked(const rw::TextBatch& batch) {
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      positions.push_back(static_cast<int32_t>(i));
      tokens.push_back(batch.targets[i]);
    }
  }
  int64_t count() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  std::vector<std::filesystem::path> files(argv + std::min(argc, 2), argv + argc);
  if (files.empty()) files = rw::default_text_files();  // licences, which every Debian has
  const std::vector<rw::Document> documents = rw::read_documents(files);
  const rw::Tokenizer tokenizer(rw::train_vocabulary(documents, {.size = 1000}));
  const std::vector<rw::TextExample> examples = rw::pack_sequences(documents, tokenizer, 32);

  rw::BertConfig config = rw::BertConfig::preset("tiny");
  config.vocab_size = tokenizer.vocabulary().size();
  rw::BertForPreTraining model(config, false);
  rw::AdamW optimizer(rw::decay_groups(model.parameters(), 0.01f), {.lr = 3e-3f});
  optimizer.set_schedule(rw::Schedule::linear(60, 6));
  optimizer.set_max_norm(1);

  rw::TextLoader loader(examples, tokenizer.vocabulary(),
                        {.batch_size = 16, .drop_last = true, .masking = rw::MaskingOptions{}});
  float first = 0, last = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const rw::TextBatch batch = loader.batch(i / loader.batches(), i % loader.batches());
    const Masked masked(batch);
    const rw::Tensor positions = rw::tensor(masked.positions, {masked.count()});
    const rw::Tensor targets = rw::tensor(masked.tokens, {masked.count()});
    // The loss computes its [masked, vocabulary] scores in chunks: they are never all in memory.
    const rw::Tensor loss = model.token_loss(model.forward(input_of(batch)), positions, targets);
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (i % 20 == 0 || i == 59) std::printf("step %2ld  loss %.3f\n", long(i), last = loss.item());
    if (i == 0) first = last;
  }
  return last < first - 0.5f ? 0 : 1;
}
