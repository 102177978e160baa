#!/usr/bin/env python3
"""Doxygen's INPUT_FILTER: what headers.py reads as comments of declarations, in Doxygen's style, and links
between pages that lead where Doxygen has put them. No line moves. Usage: filter.py FILE | --inputs FOLDER | --self-test

--inputs writes the settings INPUT and PROJECT_NUMBER; headers are named as a user includes them, by FOLDER/rewind, which
leads to the sources."""

import re
import sys
from pathlib import Path

import headers

ROOT = Path(__file__).resolve().parent.parent.parent
FRONT = ROOT / "rewind.h"
SPECIAL = re.compile(r"([@\\<>#]|(?<=\w)\*(?=\w)|^[-+](?= )|^\d+(?=\. ))")


def plain(comment):
    """The text of a comment's line, with what Doxygen would take for its own hidden from it."""
    text = re.sub(r"^// ?", "", comment)
    parts = re.split(r"(`[^`]*`)", text)  # code stays as it is
    return "".join(p if p.startswith("`") else SPECIAL.sub(r"\\\1", p) for p in parts).replace("*/", "* /")


def is_example(comment):
    return comment.startswith("//   ")


def in_lines(block):
    """A comment's lines, one for each; indented ones are an example."""
    lines, inside = [], False
    for i, comment in enumerate(block):
        if not is_example(comment):
            lines.append("/// " + plain(comment))
            continue
        last = i + 1 == len(block) or not is_example(block[i + 1])
        lines.append(f"/// {'' if inside else '@code '}{comment[5:]}{' @endcode' if last else ''}")
        inside = not last
    return lines


def in_one(block, after):
    """A comment in one line, without examples: what is said of this declaration alone comes first."""
    run, own = (" ".join(plain(c) for c in part if not is_example(c)) for part in (block, after))
    return f"@brief {own} @details {run}" if run and own else own or run


def filtered(text):
    """A header with Doxygen's comments."""
    # What specializes a template of another library is not ours to show.
    text = re.sub(r"^template <[^\n]*\nstruct fmt::.*?^};$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    reader = headers.read(text)
    lines, inserts = text.split("\n"), []
    for i, line in enumerate(in_lines(reader.file_block)):
        lines[i] = line + (" @file" if i + 1 == len(reader.file_block) else "")
    for d in reader.found:
        if d.is_first_of_run():
            for i, line in enumerate(in_lines(d.block)):
                indent = re.match(" *", lines[d.block_line + i])[0]
                lines[d.block_line + i] = indent + line
            if d.after:
                lines[d.line - 1] += " <p> " + in_one([], d.after)
        elif d.comment():
            inserts.append((d.line, d.column, f"/** {in_one(d.block, d.after)} */ "))
        if d.kind == "field" and d.comment():  # Doxygen takes a comment for the first name only
            for name in d.names[1:]:
                at = re.search(rf"(?<=, ){name}\b", lines[d.line][d.column:])
                if at:
                    inserts.append((d.line, d.column + at.start(), f"/** {in_one(d.block, d.after)} */ "))
    for line, column, comment in sorted(inserts, reverse=True):
        lines[line] = lines[line][:column] + comment + lines[line][column:]
    for i, (line, title, block) in enumerate(reader.sections):
        lines[line] = f"/** {'@} */ /** ' if i else ''}@name {plain(title)}"
        for k, comment in enumerate(block):
            lines[line + 1 + k] = plain(comment)
        lines[line + len(block)] += " */ /** @{ */"
    if reader.sections:
        end = max(i for i, line in enumerate(lines) if line.startswith("}"))
        lines[end] = "/** @} */ " + lines[end]
    if reader.file_block == headers.read(FRONT.read_text()).file_block:
        lines[-1] += "/** All of Rewind. */ namespace rw {}"
    return "\n".join(lines)


def slug(page, title):
    return page + "-" + re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def page(path, text):
    """A page whose headings can be linked to. What is no part of the reference is named, not linked."""
    pages = {p.resolve() for p in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}
    installed = set(headers.installed(ROOT))

    def link(match):  # which Doxygen wants on one line
        text = one_line(match[1].replace("\n", " "), match[2], match[3], match[0].removesuffix(match[4]))
        return text + match[4] + "\n" * match[0].count("\n")  # a lone full stop would end a list

    def cell(match):  # code in a table
        return "<code>" + match[1].replace("\\|", "&#124;") + "</code>"

    def one_line(label, target, anchor, whole):
        file = (path.parent / target).resolve() if target else path.resolve()
        name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else target
        if file in pages and anchor:
            return f"[{label}](@ref {slug(file.stem, anchor)})"
        if file in pages or "://" in target:
            return whole.replace("\n", " ")
        if name in installed:
            return f"[{label}](@ref {file.name})" if file.name == "rewind.h" else f"[{label}](@ref rewind/{name})"
        return label if name in label else f"{label} (`{name}`)"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    for i in range(0, len(parts), 2):  # the others are code
        part = re.sub(r"\[([^\]]+)\]\(([^)#\s]*)#?([^)\s]*)\)([.,;:)]*)", link, parts[i])
        part = re.sub(r"^(##+ )(.*)$", lambda m: f"{m[0]} {{#{slug(path.stem, m[2])}}}", part, flags=re.M)
        part = re.sub(r"`([^`\n]*\\\|[^`\n]*)`", cell, part)
        parts[i] = re.sub(r"`(#include <(.*?)>)`", r"<code>\\#include \\<\2\\></code>", part)
    return "".join(parts)


def inputs(folder):
    files = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/*.md"))]
    files += [f"{folder}/rewind/{name}" for name in headers.installed(ROOT)]
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
    return f"INPUT = {' '.join(files)}\nPROJECT_NUMBER = {version}"


def self_test():
    """Examples, which the test `docs` runs."""
    text = """// A file.

// About a < b in `c < d`:
//   e = f(*g);
int one();  // and [N, *C] @ x
int two();
// ---- part ----
// All > 0.

enum Three { four };  // of four
struct Five {
  int six = 0;  // the
                // sixth
};  // as 5
}  // namespace"""
    expected = """/// A file. @file

/// About a \\< b in `c < d`:
/// @code e = f(*g); @endcode <p> and [N, *C] \\@ x
int one();  // and [N, *C] @ x
/** About a \\< b in `c < d`: */ int two();
/** @name part
All \\> 0. */ /** @{ */

/** of four */ enum Three { four };  // of four
/** as 5 */ struct Five {
  /** the sixth */ int six = 0;  // the
                // sixth
};  // as 5
/** @} */ }  // namespace"""
    wrap = "namespace rw {  "  # keeps the lines' numbers
    got = filtered(text.replace("\n\n", "\n" + wrap + "\n\n", 1)).replace("\n" + wrap, "", 1)
    assert got == expected, got
    assert page(ROOT / "README.md", "[a](docs/design.md#b-c) [d](no.txt)\n## E, f") == \
        "[a](@ref design-b-c) d (`no.txt`)\n## E, f {#README-e-f}"


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    elif sys.argv[1] == "--inputs":
        print(inputs(sys.argv[2]))
    else:
        file = Path(sys.argv[1])
        sys.stdout.write(page(Path(*file.absolute().parts), file.read_text()) if file.suffix == ".md"
                         else filtered(file.read_text()))
