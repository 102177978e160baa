// Trains a residual network on photographs, on CIFAR-10, or on synthetic images, in f16 on Vulkan,
// and shows where the memory went. With --plan it predicts the memory instead; with --predict it
// classifies photographs.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/resnet/prediction.h"
#include "apps/resnet/training.h"
#include "core/base/rng.h"

using namespace rw;

namespace {

void run(ResNetOptions& options) {
  options.complete();
  if (options.planning.plan)
    return run_plan(options.program(options.recipe(options.classes)), options.planning,
                    options.device);
  if (!options.predict.empty()) return predict(options);
  options.device.open();
  manual_seed(options.seed);
  const Images images(options);
  const PhotoFolder* const photos = options.photos();
  if (photos && !options.quiet) fmt::print("{}\n", photos->str(options.image));
  run_training(options, images);
  if (photos) photos->tell_left_out();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a residual network on photographs, CIFAR-10, or synthetic images.");
  ResNetOptions options;
  options.add_to(app);
  return run_program(app, argc, argv, [&] { run(options); });
}
