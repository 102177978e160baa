#include "backends/vulkan/matrix/matrix.h"

#include "backends/vulkan/matrix/matrix_class.h"
#include "backends/vulkan/matrix/matrix_passes.h"

namespace rw::vulkan {

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

}  // namespace rw::vulkan
