// Bytes as texts of 64 characters (RFC 4648), as files in JSON have them.
#pragma once

#include <string>
#include <string_view>

namespace rw {

std::string to_base64(std::string_view bytes);
// FileError for a text that is not of this form.
std::string from_base64(std::string_view text);

}  // namespace rw
