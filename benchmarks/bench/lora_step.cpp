// Steps of training adapters of all linear layers of a decoder, planned in advance as `./rewind
// lora` plans them. In floats, peers/lora_step.py takes the same steps in PyTorch with PEFT, and
// benchmarks/lora.py runs both in turns. Prints the seconds of each step but the first, the CPU
// seconds of one of them, and the most memory of the process over that before the model, in MiB;
// with --type also the peak of the device and that of the forecast, in bytes. With --data FILE,
// each step learns other bytes of that file; with --save-losses FILE, the losses are written there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <fstream>

#include "benchmarks/bench/bench.h"
#include "core/memory/default_device.h"
#include "core/memory/process_memory.h"
#include "data/base/files.h"
#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "nn/adapters/block_layers.h"
#include "nn/adapters/frozen_weights.h"
#include "nn/adapters/lora.h"
#include "ops/autocast.h"
#include "ops/layout/indexing.h"
#include "optim/adam.h"
#include "planner/choices/planned_run.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

struct LoraStep {
  DeviceOptions device = {.device = "cpu", .dtype = "f32"};
  std::string model = "smollm2-135m", adapter, type, text, losses, budget;
  bool in_file = false;
  LoraOptions lora = {.rank = 8, .alpha = 16};
  int64_t batch = 1, length = 512, steps = 4, layers = 0, segments = 0;

  bool is_file() const { return model.find('/') != model.npos || model.ends_with(".json"); }
  DecoderConfig config() const;
  TrainingProgram program() const;
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

std::unique_ptr<Decoder> base_of(const LoraStep& o, DType dtype) {
  const DecoderConfig config = o.config();
  if (std::filesystem::is_directory(o.model)) {
    const DecoderFiles files(o.model);
    auto made = make_decoder(config, files.types(), dtype, o.in_file);
    if (!default_device()->backend().is_dry()) files.load(*made);
    return made;
  }
  if (o.type.empty()) return std::make_unique<Decoder>(config, dtype);
  const GgufTypeInfo* const found = find_gguf_type(o.type);
  check(found && found->blocks, "options", "--type must be one of blocks, as q4_k, got '{}'",
        o.type);
  auto made =
      make_decoder(config, decoder_types(config, static_cast<GgufType>(found->number)), dtype);
  for (const auto& [name, module] : made->named_modules()) {
    if (const auto* linear = dynamic_cast<BlockLinear*>(module)) fill(linear->weight());
    if (const auto* table = dynamic_cast<BlockEmbedding*>(module)) fill(table->weight());
  }
  return made;
}

class AdapterTraining {
 public:
  AdapterTraining(const LoraStep& o, DType dtype);
  // With a list, the loss is read and put there.
  void step(std::vector<float>* losses = nullptr);

 private:
  Tensor texts();  // of the next step

  const Shape shape_;
  const DType dtype_;
  const std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<FrozenWeights> frozen_;  // null: they are on the device
  std::optional<AdamW> optimizer_;
  std::string text_;  // empty: all steps learn the same
  size_t begin_ = 0;  // of the next step's part of it
};

AdapterTraining::AdapterTraining(const LoraStep& o, DType dtype)
    : shape_{o.batch, o.length + 1}, dtype_(dtype), decoder_(base_of(o, dtype)) {
  if (o.in_file) {
    const DecoderFiles files(o.model);
    constexpr uint64_t most_bytes = uint64_t{64} << 20;  // on the device
    frozen_ = std::make_unique<FrozenWeights>(matrices_in_file(&files, *decoder_), most_bytes);
  }
  if (o.adapter.empty())
    add_lora(*decoder_, o.lora);
  else
    load_adapter(o.adapter, *decoder_);
  decoder_->set_checkpoint(o.segments);
  optimizer_.emplace(decoder_->parameters(), AdamWOptions{.lr = 2e-4f, .weight_decay = 0});
  if (!o.text.empty()) text_ = read_text(o.text);
}

Tensor AdapterTraining::texts() {
  const auto vocabulary = static_cast<size_t>(decoder_->vocabulary());
  std::vector<int32_t> ids(static_cast<size_t>(shape_.numel()));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = text_.empty() ? static_cast<int32_t>((i * i * 31 + i * 7) % vocabulary)
                           : static_cast<uint8_t>(text_[(begin_ + i) % text_.size()]);
  begin_ += ids.size();
  return tensor(ids, shape_);
}

void AdapterTraining::step(std::vector<float>* losses) {
  if (frozen_) frozen_->begin_step();
  const Autocast autocast(dtype_, dtype_ != DType::f32);
  const Tensor all = texts();
  const Tensor loss = decoder_->loss(contiguous(slice(all, 1, 0, all.size(1) - 1)),
                                     contiguous(slice(all, 1, 1, all.size(1))));
  if (losses) losses->push_back(loss.item());
  optimizer_->backward(loss);
  optimizer_->step();
  optimizer_->zero_grad();
}

TrainingProgram LoraStep::program() const {
  const MakeSteps make = training_steps([o = *this](const StepSettings& s) {
    const auto training = std::make_shared<AdapterTraining>(o, s.dtype);
    return [training] { training->step(); };
  });
  return {.make = make, .settings = {.dtype = device.parsed_dtype(), .batch = batch}};
}

void LoraStep::run() const {
  device.open();
  check(!in_file || std::filesystem::is_directory(model), "options",
        "--weights-in-file needs a --model that is a folder, got '{}'", model);
  const uint64_t idle = host_memory().current;
  PlannedRun planned(program(), parse_recompute("", budget));
  std::vector<float> found;
  planned.guard([&] {
    AdapterTraining training(*this, planned.settings().dtype);
    std::clock_t begin = 0;
    for (int64_t step = 0; step <= steps; ++step) {
      const double seconds = seconds_of([&] { training.step(losses.empty() ? nullptr : &found); });
      if (step == 0) begin = std::clock();
      if (step > 0) fmt::print("{:.3f} ", seconds);
    }
    const double all = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    fmt::print("{:.3f} ", all / static_cast<double>(steps));
  });
  if (!losses.empty()) std::ofstream(losses) << fmt::format("{}\n", fmt::join(found, "\n"));
  fmt::print("{:.0f}", mib(host_memory().peak - idle));
  if (!type.empty())
    fmt::print(" {} {}", default_device()->memory_report().peak,
               planned.planner().peak(planned.settings()));
  fmt::print("\n");
}

}  // namespace

Run lora_step(CLI::App& app) {
  const auto o = std::make_shared<LoraStep>();
  shared_option(app, "--model", o->model, "a preset, a config.json or a folder with weights, too")
      ->capture_default_str();
  shared_option(app, "--adapter", o->adapter, "in place of a new one");
  shared_option(app, "--data", o->text, "a text, whose bytes are the tokens");
  app.add_option("--save-losses", o->losses, "write them there");
  shared_option(app, "--type", o->type, "of the weights, in blocks as q4_k; without it, floats");
  shared_option(app, "--layers", o->layers, "0: as the model has");
  shared_option(app, "--checkpoint-every", o->segments, "0: none");
  app.add_option("--budget", o->budget, "recompute just enough to stay below this");
  app.add_flag("--weights-in-file", o->in_file, "weights stay in the model's folder");
  shared_option(app, "--rank", o->lora.rank)->capture_default_str();
  shared_flag(app, "--dora", o->lora.dora);
  shared_option(app, "--batch", o->batch)->capture_default_str();
  shared_option(app, "--seq", o->length)->capture_default_str();
  shared_option(app, "--steps", o->steps)->capture_default_str();
  o->device.add_to(app);
  return [o] { o->run(); };
}

}  // namespace rw::bench
