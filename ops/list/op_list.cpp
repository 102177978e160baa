#include "ops/list/op_list.h"

namespace rw {

std::span<const OpInfo> op_list() {
  static constexpr OpInfo ops[] = {
#include "ops/op_list.inc"
  };
  return ops;
}

}  // namespace rw
