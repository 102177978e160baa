// Steps of training adapters of all linear layers of a decoder, beside PyTorch's with PEFT: the
// same steps are in peers/lora_step.py, and benchmarks/lora.py runs both in turns. Prints the
// seconds of each step but the first, and the most memory of the process over that before the
// model, in MiB.
#include <fmt/format.h>

#include "benchmarks/bench/bench.h"
#include "core/memory/process_memory.h"
#include "models/decoder.h"
#include "nn/adapters/lora.h"
#include "optim/adam.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

struct LoraStep {
  DeviceOptions device = {.device = "cpu", .dtype = "f32"};
  std::string model = "smollm2-135m";
  LoraOptions lora = {.rank = 8, .alpha = 16};
  int64_t batch = 1, length = 512, steps = 4;

  void run() const;
};

void LoraStep::run() const {
  device.open();
  const uint64_t idle = host_memory().current;
  const DecoderConfig config = DecoderConfig::preset(model);
  Decoder decoder(config, device.parsed_dtype());
  add_lora(decoder, lora);
  AdamW optimizer(decoder.parameters(), {.lr = 2e-4f, .weight_decay = 0});
  std::vector<int32_t> ids(static_cast<size_t>(batch * length));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(static_cast<int64_t>(i * i * 31 + i * 7) % config.vocab_size);
  const Tensor tokens = tensor(ids, {batch, length});
  for (int64_t step = 0; step <= steps; ++step) {
    const double seconds = seconds_of([&] {
      optimizer.backward(decoder.loss(tokens, tokens));
      optimizer.step();
      optimizer.zero_grad();
    });
    if (step > 0) fmt::print("{:.3f} ", seconds);
  }
  fmt::print("{:.0f}\n", mib(host_memory().peak - idle));
}

}  // namespace

Run lora_step(CLI::App& app) {
  const auto o = std::make_shared<LoraStep>();
  shared_option(app, "--model", o->model, "a preset")->capture_default_str();
  shared_option(app, "--rank", o->lora.rank)->capture_default_str();
  shared_flag(app, "--dora", o->lora.dora);
  shared_option(app, "--batch", o->batch)->capture_default_str();
  shared_option(app, "--seq", o->length)->capture_default_str();
  shared_option(app, "--steps", o->steps)->capture_default_str();
  o->device.add_to(app);
  return [o] { o->run(); };
}

}  // namespace rw::bench
