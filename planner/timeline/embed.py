#!/usr/bin/env python3
"""Makes one C++ string of a page: its style sheet and scripts go inline. Usage: embed.py PAGE OUT.cpp"""

import re
import sys
from pathlib import Path

# Compilers may refuse longer literals; neighbours are joined.
PIECE = 8000


def inline(page):
    folder = page.parent
    text = page.read_text()
    text = re.sub(r'<link rel="stylesheet" href="([^"]+)">',
                  lambda m: f"<style>\n{(folder / m[1]).read_text()}</style>", text)
    return re.sub(r'<script src="([^"]+)"></script>',
                  lambda m: f"<script>\n{(folder / m[1]).read_text()}</script>", text)


def literal(text):
    assert ')page"' not in text
    pieces = [text[i:i + PIECE] for i in range(0, len(text), PIECE)]
    return "\n".join(f'R"page({piece})page"' for piece in pieces)


def main():
    page, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.write_text(
        "#include <string_view>\n\n"
        "namespace rw::detail {\n"
        "extern const std::string_view timeline_page;\n"
        f"const std::string_view timeline_page = {literal(inline(page))};\n"
        "}  // namespace rw::detail\n")


if __name__ == "__main__":
    main()
