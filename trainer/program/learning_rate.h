// The options of the learning rate.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace rw {

// The options --lr, --scale-lr and --reference-batch.
struct LearningRateOptions {
  double lr = 0.1;
  std::string rule = "none";  // how it scales with the batch: linear, sqrt or none
  int64_t reference = 0;      // samples per update that `lr` is for; 0: not given

  // Adds the options.
  void add_to(CLI::App& app, const char* about_lr = "highest learning rate");
  // Returns the rate for updates from `batch` samples in `accumulate` steps. ValueError for options
  // that make no sense.
  double rate(int64_t batch, uint32_t accumulate) const;
  // Says how the rate was scaled, for a line of text: ", learning rate 0.4 (0.1 for 128 ...", or
  // nothing.
  std::string str(int64_t batch, uint32_t accumulate) const;
};

}  // namespace rw
