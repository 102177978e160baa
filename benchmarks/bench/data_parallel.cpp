// The cost of messages with gradients, and the share of it that is hidden behind backward: one row
// of a table for the ranks that mpirun started.
#include "dist/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "benchmarks/bench/bench.h"
#include "models/bert.h"
#include "models/resnet.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

struct Options {
  std::string device = "vulkan", model = "resnet20", transport = "f32";
  std::string in_parts = "none";
  double link = 0;  // MB/s; 0: as fast as it goes
  int64_t batch = 8, steps = 20, bucket_kib = 8192, gathered_kib = 32768;
};

// Ranks on a network of so many MB/s for each: messages take as long as there, and no processor.
class SlowLink : public Communicator {
 public:
  SlowLink(Communicator& ranks, double mb_per_second)
      : ranks_(ranks), bytes_per_second_(1e6 * mb_per_second) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  std::string str() const override { return ranks_.str(); }
  void all_to_all(std::span<const std::byte> to, std::span<const size_t> sizes,
                  std::span<std::byte> from) override {
    take(to.size() - sizes[static_cast<size_t>(rank())]);
    ranks_.all_to_all(to, sizes, from);
  }
  void all_gather(std::span<const std::byte> own, std::span<const size_t> sizes,
                  std::span<std::byte> all) override {
    take(all.size() - own.size());
    ranks_.all_gather(own, sizes, all);
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    take(bytes.size());
    ranks_.broadcast(bytes, root);
  }
  [[noreturn]] void abort(int status) override { ranks_.abort(status); }

 private:
  void take(size_t bytes) const {
    if (bytes_per_second_ > 0)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second_));
  }
  Communicator& ranks_;
  const double bytes_per_second_;
};

std::vector<ParameterGroup> groups_of(const std::vector<Tensor>& parameters,
                                      const std::string& in_parts) {
  const Shard own{world().rank(), world().size()};
  if (in_parts == "states") return shard_states(parameters, own);
  if (in_parts == "parameters") return shard_parameters(parameters, own);
  return one_group(parameters);
}

// Steps of one micro-batch on each rank; the first two are not counted.
void train_in_ranks(Optimizer&& inner, const Options& o, const std::function<Tensor()>& loss) {
  SlowLink ranks(world(), o.link);
  Accumulate optimizer(std::move(inner), 1);
  DataParallel parallel(optimizer, ranks,
                        {.bucket_bytes = o.bucket_kib << 10,
                         .transport = parse_dtype(o.transport),
                         .gathered_bytes = o.gathered_kib << 10});
  constexpr int64_t warm_up = 2;
  Traffic before;
  std::chrono::steady_clock::time_point start;
  for (int64_t step = 0; step < warm_up + o.steps; ++step) {
    if (step == warm_up) {
      default_device()->synchronize();
      default_device()->reset_peak();
      before = parallel.traffic();
      start = std::chrono::steady_clock::now();
    }
    optimizer.backward(loss());
    optimizer.step();
    optimizer.zero_grad();
  }
  default_device()->synchronize();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const Traffic after = parallel.traffic();
  const auto per_step = [&](double a, double b) {
    return 1e3 * sum_over(ranks, b - a) / ranks.size() / static_cast<double>(o.steps);
  };
  const double sent = per_step(before.gradient_seconds, after.gradient_seconds);
  const double waited = per_step(before.waited_seconds, after.waited_seconds);
  const double parameters = per_step(before.parameter_seconds, after.parameter_seconds);
  const double update = per_step(before.update_seconds, after.update_seconds);
  const uint64_t peak = std::ranges::max(gather(ranks, default_device()->memory_report().peak));
  const uint64_t sent_bytes = std::ranges::max(gather(ranks, after.gradient_bytes)),
                 sent_before = std::ranges::max(gather(ranks, before.gradient_bytes));
  if (ranks.rank() != 0) return;
  const auto mib_per_step = [&](uint64_t a, uint64_t b) {
    return mib(b - a) / static_cast<double>(o.steps);
  };
  fmt::print("| {} | {} | {} | {} | {} |", o.model, ranks.size(), o.in_parts, o.transport,
             (after.buckets - before.buckets) / static_cast<uint64_t>(o.steps));
  fmt::print(" {:.0f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {} | {:.1f} | {:.1f} | {:.1f} |\n",
             1e3 * taken.count() / static_cast<double>(o.steps),
             mib_per_step(sent_before, sent_bytes),
             mib_per_step(before.parameter_bytes, after.parameter_bytes), sent, waited,
             sent > 0 ? fmt::format("{:.0f} %", 100 * std::max(0.0, sent - waited) / sent) : "-",
             parameters, update, mib(peak));
}

void run_data_parallel(const Options& o) {
  set_default_device(open_backend(o.device));
  manual_seed(1);
  if (o.model.starts_with("resnet")) {
    ResNet model(resnet_cifar(std::stoi(o.model.substr(6))));
    const Tensor x = data({o.batch, 32, 32, 3}), y = data({o.batch}, DType::i32);
    train_in_ranks(SGD(groups_of(model.parameters(), o.in_parts), {.lr = 0.1f, .momentum = 0.9f}),
                   o, [&] { return cross_entropy(model(x), y); });
  } else {
    BertForPreTraining model(BertConfig::preset(o.model));
    model.bert.set_checkpoint(1);
    const BertInput input{.ids = data({o.batch, 64}, DType::i32)};
    const Tensor positions = data({o.batch * 9}, DType::i32),
                 targets = data({o.batch * 9}, DType::i32);
    train_in_ranks(AdamW(groups_of(model.parameters(), o.in_parts)), o,
                   [&] { return model.token_loss(model.forward(input), positions, targets); });
  }
}

}  // namespace

Run data_parallel(CLI::App& app) {
  app.description("Times steps of ranks and their messages, per step in milliseconds.");
  const auto o = std::make_shared<Options>();
  shared_option(app, "--device", o->device)->capture_default_str();
  shared_option(app, "--model", o->model, "resnetN (CIFAR), or a preset of BERT: tiny, mini, ...");
  app.add_option("--transport", o->transport, "dtype of gradients in messages");
  shared_option(app, "--batch", o->batch, "a rank's images, or sequences of 64 tokens");
  shared_option(app, "--steps", o->steps, "these are timed");
  app.add_option("--bucket", o->bucket_kib, "the KiB of gradients in a message");
  shared_option(app, "--shard", o->in_parts);
  app.add_option("--gathered", o->gathered_kib, "the KiB of gathered parameters that stay");
  app.add_option("--link", o->link, "slow messages down to a network of so many MB/s; 0: do not");
  return [o] { run_data_parallel(*o); };
}

}  // namespace rw::bench
