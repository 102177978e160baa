#include "core/context.h"

namespace rw {

const char* name(Phase phase) {
  constexpr const char* names[] = {"forward", "backward", "replay", "update"};
  return names[static_cast<int>(phase)];
}

Context& context() {
  thread_local Context here;
  return here;
}

}  // namespace rw
