// The users of ICU share this.
#pragma once

#include <unicode/uregex.h>

#include "../../core/base/error.h"

namespace rw {

// Tokenizers' files have Ruby's expressions, in which ^ and $ are at lines, and only U+000A ends
// one.
inline constexpr uint32_t regex_flags = UREGEX_MULTILINE | UREGEX_UNIX_LINES;

inline void check_icu(UErrorCode status) {
  check<Error>(U_SUCCESS(status), "BpeTokenizer", "ICU must be able to read the text, got {}",
               u_errorName(status));
}

}  // namespace rw
