#include "trainer/loop/average.h"

#include <CLI/CLI.hpp>

#include <filesystem>

namespace rw {

void AverageOptions::add_to(CLI::App& app) {
  app.add_option("--ema", decay,
                 "keep an exponential moving average of the weights, of which this share remains "
                 "after an update (as 0.999); it is evaluated beside them after every epoch, and "
                 "saved beside them by --save as NAME.ema.EXTENSION");
}

void AverageOptions::check_numbers() const {
  check(decay >= 0 && decay < 1, "options", "--ema must be in [0, 1), got {}", decay);
}

std::unique_ptr<Ema> AverageOptions::follow(Optimizer& optimizer) const {
  if (decay == 0) return nullptr;
  return std::make_unique<Ema>(
      optimizer, EmaOptions{.decay = static_cast<float>(decay), .bias_correction = true});
}

nlohmann::json Evaluation::json(const std::string& prefix) const {
  nlohmann::json json = {{prefix + "accuracy", weights.accuracy}, {prefix + "loss", weights.loss}};
  if (average)
    json.update(
        {{prefix + "ema_accuracy", average->accuracy}, {prefix + "ema_loss", average->loss}});
  return json;
}

std::string weights_path(const std::string& path, bool is_average) {
  if (!is_average) return path;
  const std::filesystem::path own(path);
  return (own.parent_path() / own.stem()).string() + ".ema" + own.extension().string();
}

}  // namespace rw
