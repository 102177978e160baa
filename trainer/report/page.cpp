#include "trainer/report/page.h"

#include <fmt/format.h>

namespace rw {

namespace {

constexpr const char* picture_style = R"(
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1c1c1a; --soft: #62625c; --line: #e2e2dc;
  --good: #1a7f4b; --bad: #b3261e; --c0: #5b5b57; --c1: #c2570c; --c2: #1f6fd1; --c3: #8b3fc4;
  --c4: #0c8a5f; --c5: #b8860b; --c6: #d1346f; --c7: #0e8ba3; --c8: #7b4a1e; }
@media (prefers-color-scheme: dark) { :root { --page: #151614; --ink: #ecece6; --soft: #a3a39b;
  --line: #33342f; --good: #5cc98d; --bad: #ff8a80; --c0: #b4b4ac; --c1: #f59a54; --c2: #6aaeff;
  --c3: #c792f5; --c4: #4fd0a0; --c5: #e3b341; --c6: #ff7faa; --c7: #58cbe0; --c8: #d2a679; } }
.grid { stroke: var(--line); }
text { fill: var(--soft); font: 12px system-ui, sans-serif; } .axis { fill: var(--ink); }
g path { fill: none; stroke: currentColor; stroke-width: 2; } g circle { fill: currentColor; }
g.dense circle { opacity: 0; } g.dense circle:hover { opacity: 1; }
g.published path { stroke-dasharray: 5 4; } circle:hover { stroke: currentColor; stroke-width: 5; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.c8 { color: var(--c8); }
)";

constexpr const char* page_style = R"(
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 1280px; padding: 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 20px; margin: 36px 0 10px; }
h3 { font-size: 15px; margin: 0 0 4px; }
p, figcaption, dd, dt { color: var(--soft); } dl { display: grid; gap: 2px 14px; margin: 8px 0;
  grid-template-columns: max-content 1fr; } dd { margin: 0; overflow-wrap: anywhere; }
.charts { display: grid; gap: 30px 34px; grid-template-columns: repeat(auto-fill, minmax(min(440px, 100%), 1fr)); }
a { color: var(--c2); } figure { margin: 0; } figcaption { font-size: 12.5px; line-height: 1.4; }
.legend { display: flex; flex-wrap: wrap; gap: 1px 14px; list-style: none; margin: 0 0 4px; padding: 0;
  font-size: 12.5px; }
.legend li::before { border-top: 3px solid; content: ''; display: inline-block; margin-right: 6px;
  vertical-align: middle; width: 16px; } .legend .published::before { border-top-style: dashed; }
svg { display: block; height: auto; width: 100%; }
.legend li { color: var(--ink); } .legend .c0::before { color: var(--c0); }
.legend .c1::before { color: var(--c1); } .legend .c2::before { color: var(--c2); }
.legend .c3::before { color: var(--c3); } .legend .c4::before { color: var(--c4); }
.legend .c5::before { color: var(--c5); } .legend .c6::before { color: var(--c6); }
.legend .c7::before { color: var(--c7); } .legend .c8::before { color: var(--c8); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13.5px; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: 5px 12px 5px 0; text-align: left;
  vertical-align: top; } th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.met { color: var(--good); font-weight: 600; } .missed { color: var(--bad); font-weight: 600; }
details { margin-top: 12px; } summary { cursor: pointer; font-weight: 600; }
)";

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

const char* chart_style() {
  return picture_style;
}

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
      "<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{3}</body>\n"
      "</html>\n",
      html_escaped(title), picture_style, page_style, body);
}

}  // namespace rw
