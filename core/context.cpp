#include "core/context.h"

#include <string_view>

namespace rw {

const char* name(Phase phase) {
  constexpr const char* names[] = {"forward", "backward", "replay", "update"};
  return names[static_cast<int>(phase)];
}

Context& context() {
  thread_local Context here;
  return here;
}

const char* op_or(const char* function) {
  static const std::string_view nobody = Context{}.op;
  return context().op == nobody ? function : context().op;
}

}  // namespace rw
