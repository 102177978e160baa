#include "core/base/error.h"

#include "core/base/thread_state.h"

namespace rw {

std::string_view OpName::text() const {
  static const std::string_view nobody = Context{}.op;
  if (is_running_ && context().op != nobody) return context().op;
  return size_ == up_to_zero ? std::string_view(data_) : std::string_view(data_, size_);
}

}  // namespace rw
