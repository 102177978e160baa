#include "rewind/core/base/thread_state.h"

#include <string_view>

namespace rw {

ThreadState& thread_state() {
  thread_local ThreadState here;
  return here;
}

const char* op_or(const char* function) {
  static const std::string_view nobody = Context{}.op;
  return context().op == nobody ? function : context().op;
}

}  // namespace rw
