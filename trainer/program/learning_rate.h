// The learning rate on the command line.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace rw {

// --lr, --scale-lr and --reference-batch.
struct LearningRateOptions {
  double lr = 0.1;
  std::string rule = "none";  // of scaling it with the batch: linear, sqrt or none
  int64_t reference = 0;      // samples per update that `lr` suits; 0: not given

  // Adds the options.
  void add_to(CLI::App& app, const char* about_lr = "highest learning rate");
  // For updates from `batch` samples in `accumulate` steps. ValueError for options that make no
  // sense.
  double rate(int64_t batch, uint32_t accumulate) const;
  // "", or what was made of them, for a line that says so: ", learning rate 0.4 (0.1 for 128 ...".
  std::string str(int64_t batch, uint32_t accumulate) const;
};

}  // namespace rw
