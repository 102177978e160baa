// Matrix products and convolutions: kernels composed of several shader modules. A call is composed
// from its parameters, dtypes and the device alone, so its workspace is known without running it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "dispatcher.h"

namespace rw::vulkan {

class Passes;

// The passes of matmul, conv2d, conv2d_dgrad or conv2d_wgrad, run as chosen.
std::shared_ptr<const Passes> compose(const KernelCall& call, const Caps& caps,
                                      const Choice& choice);

// Those of the choice that REWIND_MATMUL or the device's tuning makes. Passes are kept: a training
// step repeats its calls. Any thread may ask.
class MatrixPasses {
 public:
  explicit MatrixPasses(const Caps& caps) : caps_(caps) {}

  // matmul, conv2d, conv2d_dgrad, conv2d_wgrad.
  static bool handles(std::string_view kernel);
  std::shared_ptr<const Passes> passes(const KernelCall& call) const;
  // The passes, or null for kernels of one module.
  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const;

 private:
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;  // it is asked with views: no string is made
  };

  Caps caps_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const Passes>, TextHash, std::equal_to<>>
      kept_;
};

// Runs the modules of the call's passes.
void run_passes(const KernelCall& call, const Passes& passes, Dispatcher& dispatcher);
// Runs a call's passes, or its one module, which is that of its factors for kernels
// NAME_cooperative.
void run_modules(const KernelCall& call, const MatrixPasses& matrix, Dispatcher& dispatcher);

}  // namespace rw::vulkan
