#include "nn/activations.h"

#include "nn/init.h"

namespace rw {

PReLU::PReLU(int64_t slopes, float initial) {
  check_positive("PReLU", {{"slopes", slopes}});
  weight = register_parameter("weight", {slopes});
  init::constant_(weight, initial);
}

}  // namespace rw
