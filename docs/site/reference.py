"""Makes a page of the API reference from a header: each declaration's comment, as headers.py reads it, above its code."""

import itertools
import re
import textwrap

import headers

SPECIAL = re.compile(r"([\\*_\[\]<>#])")


def title(text):
    """Returns a heading. Markdown's table of contents shows escapes as they are, so entities stand for special characters."""
    return re.sub(r"[*\[\]<>#]", lambda match: f"&#{ord(match[0])};", text)


def prose(block):
    """Returns a comment as Markdown: code in backquotes and indented examples stay as they are."""
    lines, in_item = [], False
    for comment in block:
        text = re.sub(r"^// ?", "", comment)
        in_item = bool(re.match(r"- |\d+\. ", text)) or in_item and text.startswith("  ")
        lines.append((text.startswith("  ") and not in_item, text))
    parts = []
    for is_code, group in itertools.groupby(lines, key=lambda line: line[0]):
        text = "\n".join(text for _, text in group)
        if is_code:
            parts.append(textwrap.indent(textwrap.dedent(text), "    "))
        else:
            pieces = re.split(r"(`[^`]*`)", text)
            text = "".join(p if p.startswith("`") else SPECIAL.sub(r"\\\1", p) for p in pieces)
            parts.append(re.sub(r"\n(?=- |\d+\. )", "\n\n", text))
    return "\n\n".join(parts)


def public(lines):
    """Returns the lines of a declaration without its private members."""
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
    """Returns the declarations at namespace scope; those that share a comment and have no line between them are together."""
    found, heads = [], {number for number, _ in reader.heads}
    for d in sorted((d for d in reader.found if d.scope.kind == "namespace" and d.is_public and d.kind != "namespace"),
                    key=lambda d: d.line):
        between = range(found[-1][-1].end + 1, d.line) if found else ()
        if found and heads.issuperset(between) and d.block_line == found[-1][0].block_line:
            found[-1].append(d)
        else:
            found.append([d])
    return found


def page(path, text):
    reader = headers.read(text)
    parts = [f"# rewind/{path}", prose(reader.file_block)]
    sections = list(reader.sections)
    for run in runs(reader):
        while sections and sections[0][0] < run[0].line:
            _, name, block = sections.pop(0)
            parts += ["## " + title(name), prose(block)]
        names = dict.fromkeys(name for d in run for name in d.names)
        parts.append("### " + title(", ".join(names)))
        if run[0].is_first_of_run():
            parts.append(prose(run[0].block))
        heads = [number for number, _ in reader.heads]
        code = public([reader.lines[i] for i in range(run[0].line, run[-1].end + 1) if i not in heads])
        parts.append("```cpp\n" + "\n".join(code) + "\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def self_test():
    """Checks an example; the test `docs` runs this."""
    text = """// A file.

namespace rw {

// About a < b in `c
// < d`:
//   e = f(*g);
// - one,
//   or
// - two
int one();  // and [N, *C]
//! op: two
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

About a \\< b in `c
< d`:

    e = f(*g);

- one,
  or

- two

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
