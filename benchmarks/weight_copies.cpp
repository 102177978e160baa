// What 16-bit copies of weights that are made once per update spare: kernels, bytes that kernels
// move, and the peak, of an update in the steady state. Counted by dry runs.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <functional>

#include "backends/open.h"
#include "models/bert.h"
#include "models/resnet.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"

using namespace rw;

namespace {

constexpr int updates = 3;  // the last one is counted

Tensor data(const Shape& shape, DType dtype = DType::f32) {
  const PurposeScope scope(Purpose::data);
  return zeros(shape, dtype);
}

struct Case {
  uint32_t accumulate;
  int checkpoint_every;  // layers; 0: no segments
  WeightCopyUse use;
};

void train(Optimizer&& inner, const Case& c, const std::function<Tensor()>& loss) {
  Accumulate optimizer(std::move(inner), c.accumulate);
  optimizer.set_weight_copies(c.use);
  for (int i = 0; i < updates; ++i) {
    if (i == updates - 1) default_device()->reset_peak();
    for (uint32_t k = 0; k < c.accumulate; ++k) {
      {
        Tensor value;
        {
          const Autocast autocast(DType::f16);
          value = loss();
        }
        optimizer.backward(value);
      }
      optimizer.step();
      optimizer.zero_grad();
      default_device()->end_step();
    }
  }
}

void run_bert(const Case& c) {
  BertForPreTraining model(BertConfig::preset("mini"));
  model.bert.set_checkpoint(c.checkpoint_every);
  const BertInput input{.ids = data({16, 128}, DType::i32)};
  const Tensor positions = data({16 * 19}, DType::i32), targets = data({16 * 19}, DType::i32);
  train(AdamW(model.parameters()), c,
        [&] { return model.token_loss(model.forward(input), positions, targets); });
}

void run_resnet(const Case& c) {
  ResNet model(resnet_cifar(20));
  if (c.checkpoint_every > 0) model.set_checkpoint(CheckpointMode::block, c.checkpoint_every);
  const Tensor x = data({32, 32, 32, 3}), y = data({32}, DType::i32);
  train(SGD(model.parameters(), {.lr = 0.1f, .momentum = 0.9f}), c,
        [&] { return cross_entropy(model(x), y); });
}

void print_row(const char* model, const Case& c, const Forecast& f) {
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto of = [&](Phase phase) { return f.work[static_cast<size_t>(phase)]; };
  uint64_t calls = 0, bytes = 0;
  for (const Work& work : f.work) calls += work.calls, bytes += work.bytes;
  constexpr const char* uses[] = {"casts", "outside segments", "always"};
  fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2f} |\n", model,
             c.accumulate, c.checkpoint_every ? "yes" : "no", uses[static_cast<int>(c.use)],
             of(Phase::forward).calls, of(Phase::replay).calls, of(Phase::update).calls, calls,
             mib(of(Phase::forward).bytes + of(Phase::replay).bytes), mib(bytes),
             mib(f.memory.peak));
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Kernels, bytes and peaks with and without 16-bit copies of weights");
  std::string device = "cpu";
  app.add_option("--device", device, "whose kernels are counted")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_default_device(open_backend(device));
  fmt::print(
      "| model | micro-batches | segments | weights | forward kernels | replay | update | all | "
      "forward and replay MiB | all MiB | peak MiB |\n"
      "|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
  struct Model {
    const char* name;
    void (*run)(const Case&);
  };
  for (const Model& model : {Model{"BERT mini", run_bert}, Model{"ResNet-20", run_resnet}})
    for (const uint32_t accumulate : {1u, 4u})
      for (const int every : {0, 1})
        for (const WeightCopyUse use :
             {WeightCopyUse::never, WeightCopyUse::outside_segments, WeightCopyUse::always}) {
          if (every == 0 && use == WeightCopyUse::always) continue;  // the same
          const Case c{accumulate, every, use};
          print_row(model.name, c, plan([&] { model.run(c); }));
        }
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
