#include "backends/vulkan/matrix/matrix.h"

#include "backends/vulkan/matrix/matrix_class.h"
#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/matrix/product.h"

namespace rw::vulkan {

namespace {

// The choice that the environment asks for, or that tuning found.
Choice choice_for(const KernelCall& call, const Caps& caps) {
  const Choice forced = forced_choice();
  if (forced != Choice{} || caps.tuning.choices.empty()) return forced;
  const auto tuned = caps.tuning.choices.find(class_of(call));
  return tuned == caps.tuning.choices.end() ? Choice{} : tuned->second;
}

void add_product(Passes& passes, const Caps& caps, const KernelCall& call, const Choice& choice) {
  const Operand a = operand(call, 0), b = operand(call, 1), c = operand(call, 2);
  if (call.kernel == "matmul")
    add_matmul(passes, caps, choice, params_of<kernels::MatmulParams>(call), a, b, c);
  else
    add_conv(passes, caps, choice, call.kernel, params_of<kernels::Conv2dParams>(call), a, b, c);
}

}  // namespace

std::shared_ptr<const Passes> compose(const KernelCall& call, const Caps& caps,
                                      const Choice& choice) {
  const auto made = std::make_shared<Passes>();
  add_product(*made, caps, call, choice);
  return made;
}

void add_product(Passes& passes, const Caps& caps, const KernelCall& call) {
  log_product(call);
  add_product(passes, caps, call, choice_for(call, caps));
}

}  // namespace rw::vulkan
