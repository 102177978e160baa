// Trains a residual network on photographs, on CIFAR-10, or on images that it draws itself, in f16
// on Vulkan, and shows where the memory went. With --plan it predicts that instead; with --predict
// it says what is in photographs.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/resnet/prediction.h"
#include "apps/resnet/training.h"
#include "core/base/rng.h"

using namespace rw;

namespace {

void train(const ResNetOptions& options, const Images& images, ProgramRun& run) {
  ResNetTraining training(options, images, run);
  if (options.eval) return ResNetTraining::print(training.evaluate(), images);
  training.run();
  training.save();
  const ReportFile file(options.report);
  nlohmann::json report = training.report();
  file.write_so_far(report);
  const Evaluation found = training.evaluate();
  report.update(found.json("test_"));
  ResNetTraining::print(found, images);
  const RunAccount account = run.account();
  fmt::print("\n{}", account.str());
  report["device"] = account_json(account);
  file.write(report);
}

void run(ResNetOptions& options) {
  options.complete();
  if (options.planning.plan)
    return run_plan(options.program(options.recipe(options.classes)), options.planning,
                    options.device, options.report);
  if (!options.predict.empty()) return predict(options);
  options.device.open();
  manual_seed(options.seed);
  const Images images(options);
  ProgramRun planned(ResNetTraining::program(options, images), options.planning);
  planned.guard([&] { train(options, images, planned); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a residual network on photographs, CIFAR-10, or images that it draws.");
  ResNetOptions options;
  options.add_to(app);
  return run_program(app, argc, argv, [&] { run(options); });
}
