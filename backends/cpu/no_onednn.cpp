// Without oneDNN, the loops of the reference backend take its place.
#include "backends/cpu/prepared_call.h"

namespace rw::cpu {

std::string product_library() {
  return "";
}

std::shared_ptr<const PreparedCall> prepare_matmul(const KernelCall&) {
  return nullptr;
}

std::shared_ptr<const PreparedCall> prepare_convolution(const KernelCall&) {
  return nullptr;
}

}  // namespace rw::cpu
