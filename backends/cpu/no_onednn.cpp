// Without oneDNN, loops of ours take its place where there are some, and else the reference's.
#include "backends/cpu/prepared_call.h"
#include "backends/cpu/winograd.h"

namespace rw::cpu {

std::string product_library() {
  return "";
}

std::shared_ptr<const PreparedCall> prepare_matmul(const KernelCall&) {
  return nullptr;
}

std::shared_ptr<const PreparedCall> prepare_convolution(const KernelCall& call) {
  return prepare_winograd(call);
}

}  // namespace rw::cpu
