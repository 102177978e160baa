// Pieces of work whose speed is compared with PyTorch's: benchmarks/peers/speed.py has cases of the
// same names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../apps/common/standard_steps.h"

namespace rw::speed {

// Queues one run of a piece of work.
using Work = std::function<void()>;

struct Case {
  std::string name;                 // "group/what"
  double flops = 0;                 // of a run; 0: the rate is not shown
  double bytes = 0;                 // read and written by a run in f32; 0: the rate is not shown
  std::function<Work(DType)> make;  // prepares it on the default device
  bool is_large = false;            // takes minutes on a CPU
};

std::vector<Case> product_cases();    // matrix products and convolutions
std::vector<Case> attention_cases();  // lengths 128 to 4096
std::vector<Case> bandwidth_cases();  // elementwise, reductions, norms, copies, embeddings
std::vector<Case> optimizer_cases();  // updates
std::vector<Case> decoder_cases();    // a language model, forward and backward
std::vector<Case> step_cases();       // whole training steps
std::vector<Case> all_cases();

// One run of forward, or of forward and backward.
Work forward(std::function<Tensor()> body);
Work forward_and_backward(std::function<Tensor()> body, std::vector<Tensor> leaves);

// Returns the work to compare a case with when there is neither PyTorch nor a device: OpenBLAS for
// products, memcpy for "copy". Throws ValueError for other cases, and if this program was built
// without OpenBLAS.
Work reference(const std::string& name);

}  // namespace rw::speed
