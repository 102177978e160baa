"""A page of the API reference from a header: what headers.py reads as the comment of a declaration, above its code."""

import re

import headers

SPECIAL = re.compile(r"([\\*_\[\]<>#])")


def prose(block):
    """A comment's lines as Markdown: code in backquotes and indented examples stay as they are."""
    lines = []
    for comment in block:
        text = re.sub(r"^// ?", "", comment)
        is_code, is_item = text.startswith("  "), re.match(r"- |\d+\. ", text)
        parts = [text] if is_code else re.split(r"(`[^`]*`)", text)
        line = "".join(p if is_code or p.startswith("`") else SPECIAL.sub(r"\\\1", p) for p in parts)
        was_code, was_item = (lines[-1].startswith(" "), lines[-1][:2] == "- ") if lines else (False, False)
        if lines and is_code != was_code or is_item and not was_item:
            lines.append("")
        lines.append("    " + line[2:] if is_code else line)
    return "\n".join(lines)


def public(lines):
    """The lines of a declaration without its private members."""
    kept, hidden = [], None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if hidden is not None and line.strip() and (indent < hidden or re.match(r"\s*(public|protected):", line)):
            hidden = None
        if re.match(r"\s*private:", line):
            hidden = indent
            while kept and not kept[-1].strip():
                kept.pop()
        if hidden is None:
            kept.append(line)
    return kept


def runs(reader):
    """The declarations at namespace scope, those together that share a comment and have no line between them."""
    found = []
    for d in sorted((d for d in reader.found if d.scope.kind == "namespace" and d.is_public and d.kind != "namespace"),
                    key=lambda d: d.line):
        if found and d.line <= found[-1][-1].end + 1 and d.block_line == found[-1][0].block_line:
            found[-1].append(d)
        else:
            found.append([d])
    return found


def page(path, text):
    reader = headers.read(text)
    parts = [f"# rewind/{path}", prose(reader.file_block)]
    sections = [(line, title, block) for line, title, block in reader.sections]
    for run in runs(reader):
        while sections and sections[0][0] < run[0].line:
            _, title, block = sections.pop(0)
            parts += ["## " + SPECIAL.sub(r"\\\1", title), prose(block)]
        names = dict.fromkeys(name for d in run for name in d.names)
        parts.append("### " + ", ".join(SPECIAL.sub(r"\\\1", name) for name in names))
        if run[0].is_first_of_run():
            parts.append(prose(run[0].block))
        code = public(reader.lines[run[0].line:run[-1].end + 1])
        parts.append("```cpp\n" + "\n".join(code) + "\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def self_test():
    """An example, which the test `docs` runs."""
    text = """// A file.

namespace rw {

// About a < b in `c < d`:
//   e = f(*g);
int one();  // and [N, *C]
int two();
// ---- part ----
// All > 0.

struct Five {
  int six = 0;
 private:
  int seven = 0;
};
}  // namespace rw"""
    expected = """# rewind/a/b.h

A file.

### one, two

About a \\< b in `c < d`:

    e = f(*g);

```cpp
int one();  // and [N, *C]
int two();
```

## part

All \\> 0.

### Five

```cpp
struct Five {
  int six = 0;
};
```
"""
    got = page("a/b.h", text)
    assert got == expected, got
