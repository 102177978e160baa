// Steps of training adapters of all linear layers of a decoder. In floats, peers/lora_step.py takes
// the same steps in PyTorch with PEFT, and benchmarks/lora.py runs both in turns. Prints the
// seconds of each step but the first, the CPU seconds of one of them, and the most memory of the
// process over that before the model, in MiB; with --type also the peak of the device and that of
// the forecast, in bytes. With --save-losses FILE, writes the losses there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <fstream>

#include "benchmarks/bench/bench.h"
#include "core/memory/default_device.h"
#include "core/memory/process_memory.h"
#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "nn/adapters/block_layers.h"
#include "nn/adapters/lora.h"
#include "ops/autocast.h"
#include "ops/layout/indexing.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

struct LoraStep {
  DeviceOptions device = {.device = "cpu", .dtype = "f32"};
  std::string model = "smollm2-135m", adapter, type, losses;
  LoraOptions lora = {.rank = 8, .alpha = 16};
  int64_t batch = 1, length = 512, steps = 4, layers = 0, segments = 0;

  bool is_file() const { return model.find('/') != model.npos || model.ends_with(".json"); }
  DecoderConfig config() const;
  void train(bool prints) const;
  void run() const;
};

DecoderConfig LoraStep::config() const {
  DecoderConfig made = is_file() ? read_decoder_config(model) : DecoderConfig::preset(model);
  if (layers > 0) made.num_hidden_layers = layers;
  return made;
}

// Fills rows with the blocks of the same small numbers.
void fill(const BlockMatrix& matrix) {
  const BlockType& type = matrix.type();
  std::vector<float> values(type.elements);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.02f * (static_cast<float>(i * 37 % 64) / 32 - 1);
  std::vector<std::byte> block(type.bytes());
  type.encode(values.data(), block.data());
  std::vector<uint8_t> row(static_cast<size_t>(matrix.codes().size(1)));
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = std::to_integer<uint8_t>(block[i % block.size()]);
  Tensor codes = matrix.codes();
  codes.copy_(expand(tensor(row, {1, codes.size(1)}), codes.shape()));
}

std::unique_ptr<Decoder> base_of(const DecoderConfig& config, const std::string& type,
                                 DType dtype) {
  if (type.empty()) return std::make_unique<Decoder>(config, dtype);
  const GgufTypeInfo* const found = find_gguf_type(type);
  check(found && found->blocks, "options", "--type must be one of blocks, as q4_k, got '{}'", type);
  auto made =
      make_decoder(config, decoder_types(config, static_cast<GgufType>(found->number)), dtype);
  for (const auto& [name, module] : made->named_modules()) {
    if (const auto* linear = dynamic_cast<BlockLinear*>(module)) fill(linear->weight());
    if (const auto* table = dynamic_cast<BlockEmbedding*>(module)) fill(table->weight());
  }
  return made;
}

void LoraStep::train(bool prints) const {
  const DType dtype = device.parsed_dtype();
  const DecoderConfig shape = config();
  const auto decoder = base_of(shape, type, dtype);
  if (std::filesystem::is_directory(model)) load_decoder(model, *decoder);
  if (adapter.empty())
    add_lora(*decoder, lora);
  else
    load_adapter(adapter, *decoder);
  decoder->set_checkpoint(segments);
  AdamW optimizer(decoder->parameters(), {.lr = 2e-4f, .weight_decay = 0});
  std::vector<int32_t> ids(static_cast<size_t>(batch * (length + 1)));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(static_cast<int64_t>(i * i * 31 + i * 7) % shape.vocab_size);
  const Tensor texts = tensor(ids, {batch, length + 1}),
               tokens = contiguous(slice(texts, 1, 0, length)),
               labels = contiguous(slice(texts, 1, 1, length + 1));
  std::vector<float> found;
  std::clock_t begin = 0;
  for (int64_t step = 0; step <= steps; ++step) {
    const double seconds = seconds_of([&] {
      const Autocast autocast(dtype, dtype != DType::f32);
      const Tensor loss = decoder->loss(tokens, labels);
      if (prints && !losses.empty()) found.push_back(loss.item());
      optimizer.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    });
    if (step == 0) begin = std::clock();
    if (prints && step > 0) fmt::print("{:.3f} ", seconds);
  }
  const double all = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  if (prints) fmt::print("{:.3f} ", all / static_cast<double>(steps));
  if (prints && !losses.empty())
    std::ofstream(losses) << fmt::format("{}\n", fmt::join(found, "\n"));
}

void LoraStep::run() const {
  device.open();
  std::optional<Forecast> forecast;
  if (!type.empty()) forecast = plan([&] { train(false); });
  const uint64_t idle = host_memory().current;
  train(true);
  fmt::print("{:.0f}", mib(host_memory().peak - idle));
  if (forecast) fmt::print(" {} {}", default_device()->memory_report().peak, forecast->memory.peak);
  fmt::print("\n");
}

}  // namespace

Run lora_step(CLI::App& app) {
  const auto o = std::make_shared<LoraStep>();
  shared_option(app, "--model", o->model, "a preset, a config.json or a folder with weights, too")
      ->capture_default_str();
  shared_option(app, "--adapter", o->adapter, "in place of a new one");
  app.add_option("--save-losses", o->losses, "write them there");
  shared_option(app, "--type", o->type, "of the weights, in blocks as q4_k; without it, floats");
  shared_option(app, "--layers", o->layers, "0: as the model has");
  shared_option(app, "--checkpoint-every", o->segments, "0: none");
  shared_option(app, "--rank", o->lora.rank)->capture_default_str();
  shared_flag(app, "--dora", o->lora.dora);
  shared_option(app, "--batch", o->batch)->capture_default_str();
  shared_option(app, "--seq", o->length)->capture_default_str();
  shared_option(app, "--steps", o->steps)->capture_default_str();
  o->device.add_to(app);
  return [o] { o->run(); };
}

}  // namespace rw::bench
