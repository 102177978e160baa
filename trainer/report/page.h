// HTML pages that need no network, in the colours of the reader's system.
#pragma once

#include <string>
#include <string_view>

namespace rw {

std::string html_escaped(std::string_view text);  // for text and attributes
const char* chart_style();                        // CSS of pictures that are files of their own
// Returns a whole page; `title` is its heading, too.
std::string html_page(std::string_view title, std::string_view body);

}  // namespace rw
