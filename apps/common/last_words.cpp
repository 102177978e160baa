// Programs that link this and do not catch an exception end with a line that says what it was.
#include "core/base/last_words.h"

namespace {

[[maybe_unused]] const bool has_last_words = (rw::end_with_last_words(), true);

}  // namespace
