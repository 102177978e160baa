#include "core/base/context.h"

namespace rw {

const char* name(Purpose p) {
  constexpr const char* names[] = {"parameters",  "gradients", "optimizer state",
                                   "activations", "workspace", "data"};
  return names[static_cast<int>(p)];
}

const char* name(Phase phase) {
  constexpr const char* names[] = {"forward", "backward", "replay", "update"};
  return names[static_cast<int>(phase)];
}

}  // namespace rw
