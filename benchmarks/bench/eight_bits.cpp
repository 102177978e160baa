// Values kept in 8 bits (`--keep-8-bits`) on real data: the error of the gradient of one step,
// beside the memory, for a ResNet-20 on CIFAR-10 and small decoders on bytes of a text.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "benchmarks/bench/bench.h"
#include "core/base/rng.h"
#include "data/base/files.h"
#include "data/images/cifar.h"
#include "data/images/loader.h"
#include "models/decoder.h"
#include "models/gpt.h"
#include "models/resnet.h"
#include "ops/losses/losses.h"
#include "planner/follow/follower.h"
#include "planner/search/search.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

// A model with a batch.
struct Problem {
  std::shared_ptr<Module> model;
  std::function<Tensor()> loss;
};
using MakeProblem = std::function<Problem()>;

MakeProblem resnet_problem(const std::string& folder, int batch_size) {
  const auto data = std::make_shared<ImageDataset>(load_cifar10(folder, Split::train));
  const auto [mean, std] = channel_statistics(*data);
  Loader loader(*data, {.batch_size = batch_size, .shuffle = true, .mean = mean, .std = std});
  return [batch = loader.batch(0, 0)] {
    manual_seed(1);
    const auto model = std::make_shared<ResNet>(ResNetConfig{});
    const PurposeScope purpose(Purpose::data);
    const Tensor x = tensor(std::span<const float>(batch.pixels), {batch.size(), 32, 32, 3});
    const Tensor labels = tensor(std::span<const int32_t>(batch.labels), {batch.size()});
    return Problem{model, [=] { return cross_entropy(model->forward(x), labels); }};
  };
}

template <class Model, class Config>
MakeProblem language_problem(const std::string& file, const Config& config) {
  constexpr int64_t rows = 8, length = 256;
  const std::vector<uint8_t> text = read_file(file);
  std::vector<int32_t> ids, next;
  for (size_t i = 0; i < rows * length; ++i) {
    ids.push_back(text.at(i));
    next.push_back(text.at(i + 1));
  }
  return [=] {
    manual_seed(1);
    const auto model = std::make_shared<Model>(config);
    const PurposeScope purpose(Purpose::data);
    const Tensor x = tensor(std::span<const int32_t>(ids), {rows, length});
    const Tensor y = tensor(std::span<const int32_t>(next), {rows * length});
    return Problem{model, [=] {
                     manual_seed(2);  // of dropout
                     Tensor hidden = model->hidden(x, nullptr);
                     const int64_t width = hidden.size(-1);
                     hidden = reshape(std::move(hidden), {rows * length, width});
                     return cross_entropy(linear(std::move(hidden), model->head_weight()), y);
                   }};
  };
}

struct Step {
  float loss = 0;
  std::vector<float> gradient;  // of all parameters
  uint64_t peak = 0;
};

// Without a plan it follows the one around it, if there is one.
Step take(const MakeProblem& make, const Plan* plan = nullptr) {
  default_device()->reset_peak();
  const Problem problem = make();
  Step step;
  {
    std::optional<PlanFollower> scope;
    if (plan) scope.emplace(*plan);
    const Tensor loss = problem.loss();
    loss.backward();
    step.loss = loss.item();
  }
  for (const Tensor& p : problem.model->parameters()) {
    const std::vector<float> gradient = p.grad().to_vector();
    step.gradient.insert(step.gradient.end(), gradient.begin(), gradient.end());
  }
  step.peak = default_device()->memory_report().peak;
  return step;
}

// The norm of the difference over the norm of the exact gradient.
double relative_error(const std::vector<float>& gradient, const std::vector<float>& exact) {
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(double{gradient[i]} - double{exact[i]}, 2);
    size += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(error / size);
}

void compare_8_bits(const char* name, const MakeProblem& make, const std::vector<double>& shares) {
  const Step exact = take(make);
  Search search([] { return default_device()->backend().dry(); }, [&] { take(make); },
                {.host_bytes = 0, .keep_8_bits = true});
  for (const double share : shares) {
    const auto bytes = static_cast<uint64_t>(share * static_cast<double>(exact.peak));
    if (search.candidates().back().peak() > bytes) continue;
    const Candidate choice = search.budget(bytes);
    const Step step = take(make, &choice.plan);
    fmt::print("| {} | {:.2f} | {:.1f} | {:.1f} | {:.1f} | {} | {} | {:.2e} |\n", name, share,
               mib(step.peak), mib(choice.peak()), mib(choice.plan.in_8_bits),
               choice.plan.segments.size(), step.loss == exact.loss ? "equal" : "DIFFERS",
               relative_error(step.gradient, exact.gradient));
    std::fflush(stdout);
  }
}

}  // namespace

Run eight_bits(CLI::App& app) {
  app.description("Values kept in 8 bits: the error of gradients, and the memory.");
  struct Options {
    std::string data, device = "cpu";
    std::vector<double> shares = {0.9, 0.7, 0.5, 0.4, 0.3, 0.2};
    int batch = 128;
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--data", o->data, "a folder with cifar-10-batches-bin and text")->required();
  shared_option(app, "--device", o->device)->capture_default_str();
  shared_option(app, "--share", o->shares)->check(CLI::Range(0.0, 1.0));
  shared_option(app, "--batch", o->batch, "images")->capture_default_str();
  return [o] {
    set_default_device(open_backend(o->device));
    fmt::print(
        "| network | budget, share of the plain peak | peak MiB | predicted | in 8 bits MiB | "
        "segments | loss | error of the gradient |\n|---|---:|---:|---:|---:|---:|---|---:|\n");
    compare_8_bits("ResNet-20", resnet_problem(o->data, o->batch), o->shares);
    const std::string text = o->data + "/text/tinyshakespeare.txt";
    const GptConfig gpt{
        .vocab_size = 256, .n_positions = 256, .n_embd = 256, .n_layer = 4, .n_head = 4};
    compare_8_bits("GPT-2, 4 layers of 256", language_problem<GptLMHeadModel>(text, gpt),
                   o->shares);
    DecoderConfig qwen = DecoderConfig::preset("tiny");
    qwen.vocab_size = gpt.vocab_size;
    compare_8_bits("Qwen3, 4 layers of 192", language_problem<Decoder>(text, qwen), o->shares);
  };
}

}  // namespace rw::bench
