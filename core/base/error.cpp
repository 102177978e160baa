#include "core/base/error.h"

#include "core/base/thread_state.h"

namespace rw {

std::string_view OpName::text() const {
  static const std::string_view nobody = Context{}.op;
  if (size_ == running && context().op != nobody) return context().op;
  return size_ >= running ? std::string_view(data_) : std::string_view(data_, size_);
}

}  // namespace rw
