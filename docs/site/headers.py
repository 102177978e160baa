"""Reads the project's headers: their declarations, and the comment that documents each.

The rule. A comment documents the declaration that it stands directly before, and those that follow without
a blank line or another comment between (a run). A comment at the end of a line documents the declaration
there, with more lines of it below in the same column; after the brace that ends a type, it documents the type. From a run,
fields do not take the comment of a type, and deleted or defaulted functions take none. The first comment of a
file describes the file. `// ---- title ----` begins a section and documents nothing. `//! key: value` is a head: facts for
programs (ops/list/op_list.py), which stand where a comment might and are none.

This is not a parser of C++, but of the part of it that clang-format and this project's style leave."""

import re
from dataclasses import dataclass, field

SECTION = re.compile(r"//\s*----+ (.*?) -*$")
TYPE = re.compile(r"\b(?:class|struct|union|enum(?: class)?) (?:alignas\(\w+\) )?((?:\w+::)*\w+)")
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|/\*.*?\*/')
NAME = re.compile(r"(operator@\d*|~?\w+) ?\(")


@dataclass
class Declaration:
    line: int  # of its first word, from 0
    scope: "Scope"
    block: list = field(default_factory=list)  # the lines of the comment before it, or before its run
    block_line: int = -1  # where that comment begins
    after: list = field(default_factory=list)  # the comment at the end of its lines
    text: str = ""  # without bodies and comments, on one line
    kind: str = ""  # namespace, type, enum, value, alias, function, field, or empty: names nothing new
    names: list = field(default_factory=list)
    end: int = -1  # its last line
    is_public: bool = True  # or protected, and so is what it is in; in a namespace

    def comment(self):
        return self.block + self.after

    def is_first_of_run(self):
        return bool(self.block) and self.block_line + len(self.block) == self.line


@dataclass
class Scope:
    kind: str  # namespace, type, enum, or body: of a function, or an initial value
    name: str = ""
    access: str = "public"
    owner: Declaration = None  # of a type
    run: tuple = ([], -1)  # the comment that the next declaration belongs to


def flat(text):
    """Removes everything inside brackets: `f(int a = g<3>())` becomes `f()`."""
    text = re.sub(r"operator ?(\(\)|\[\]|[^\s\w(]+)", lambda m: f"operator@{len(m[1])}", text)
    text = re.sub(r"\[\[.*?\]\]|->", " ", text)
    kept, open_brackets = [], []
    for i, c in enumerate(text):
        if c in ")]}" or c == ">" and open_brackets and open_brackets[-1] == "<":
            if open_brackets:
                open_brackets.pop()
        if not open_brackets:
            kept.append(c)
        if c in "([{" or c == "<" and (not open_brackets or open_brackets[-1] == "<"):
            open_brackets.append(c)
    text = re.sub(r"\s+", " ", "".join(kept)).strip()
    return re.sub(r"template ?<> ?|requires ?\(\) ?|requires [\w:]+(<>)? ?|decltype ?\(\)", "", text)


def classify(d):
    """Sets the kind and the names of a declaration whose text is whole."""
    text = flat(d.text)
    pointer = re.search(r"\( ?\* ?(\w+) ?\) ?\(", d.text)
    left = text.split("=")[0].strip() if "operator" not in text else text
    if re.match(r"(friend|static_assert|extern|public|private|protected)\b", text) or not text:
        d.kind = ""
    elif match := re.match(r"using (\w+) =", text):
        d.kind, d.names = "alias", [match[1]]
    elif text.startswith("using ") or re.fullmatch(r"(class|struct|union|enum class) [\w:]+", left):
        d.kind = ""
    elif match := re.match(r"concept (\w+)", text):
        d.kind, d.names = "type", [match[1]]
    elif pointer and "(" in left:
        d.kind, d.names = "field", [pointer[1]]
    elif match := NAME.search(left):
        d.kind, d.names = "function", [match[1]]
        if match[1].startswith("operator"):
            d.names = [re.search(r"operator ?(?:\(\)|\[\]|[^\s(]+)", d.text)[0]]
        elif re.search(r"operator [\w:]+ ?\(", text):
            d.names = ["operator " + match[1]]
    else:
        d.kind = "field"
        d.names = [re.findall(r"\w+", part.split("=")[0])[-1] for part in text.split(",") if part.strip()]


class Reader:
    def __init__(self, text):
        self.lines = text.split("\n")
        self.scopes = [Scope("namespace")]
        self.found, self.sections, self.file_block, self.heads = [], [], [], []
        self.current, self.depth, self.pending = None, 0, ([], -1)
        self.last = None  # the declaration that a comment at the end of this line belongs to
        self.column_after = -1  # of a comment at the end of the line before
        for number, line in enumerate(self.lines):
            self.read(number, line)

    def read(self, number, line):
        code = QUOTED.sub(lambda m: " " * len(m[0]), line)
        at = code.find("//")
        comment, column = (line[at:], at) if at >= 0 else ("", -1)
        code = code[:at] if at >= 0 else code
        scope = self.scopes[-1]
        if comment.startswith("//!"):
            self.heads.append((number, comment[3:].strip()))
        elif code.strip() and not code.lstrip().startswith("#"):
            self.last = self.current
            self.feed(number, code)
            if comment and self.last:
                self.last.after.append(comment)
            self.column_after = column if comment and self.last else -1
        elif comment and column == self.column_after and column > 0 and self.last:
            self.last.after.append(comment)
        elif comment and not self.current and scope.kind != "body":
            self.column_after = -1
            if match := SECTION.match(comment):
                self.sections.append([number, match[1], []])
                self.pending, scope.run = ([], -1), ([], -1)
            elif self.pending[0] and self.pending[1] + len(self.pending[0]) == number:
                self.pending[0].append(comment)
            else:
                self.pending = ([comment], number)
            if self.pending[1] == 0:
                self.file_block = self.pending[0]
        elif not comment:
            self.column_after = -1
            if not self.current and scope.kind != "body":
                if self.sections and self.pending[1] == self.sections[-1][0] + 1:
                    self.sections[-1][2] = self.pending[0]  # of the section as a whole
                self.pending, scope.run = ([], -1), ([], -1)

    def feed(self, number, code):
        i = 0
        while i < len(code):
            c, scope = code[i], self.scopes[-1]
            if scope.kind == "body":
                if c == "{":
                    self.depth += 1
                elif c == "}":
                    self.depth -= 1
                    if not self.depth:
                        self.end_body(number, code[i + 1:])
            elif c == "}" and not self.brackets():
                if scope.kind == "enum" and self.current:
                    self.finish(number)
                self.scopes.pop()
                self.last = scope.owner if scope.kind in ("type", "enum") else None
                if self.last:
                    self.last.end = number
                self.current = None
            elif self.current is None and (match := re.match(r"(public|private|protected):", code[i:])):
                scope.access = match[1]
                i += len(match[0]) - 1
            elif self.current is None:
                if not c.isspace() and c != ";":
                    self.begin(number)
                    continue
            elif c == "{" and not self.brackets():
                self.open(number)
            elif c == (";" if scope.kind != "enum" else ",") and not self.brackets():
                self.finish(number)
            else:
                self.current.text += c
            i += 1
        if self.current:
            self.current.text += " "

    def brackets(self):
        text = self.current.text if self.current else ""
        return text.count("(") - text.count(")")

    def begin(self, number):
        scope = self.scopes[-1]
        if self.pending[0]:
            scope.run, self.pending = self.pending, ([], -1)
        self.current = self.last = Declaration(number, scope, *scope.run)
        in_public = scope.owner.is_public if scope.owner else scope is not self.scopes[0]
        self.current.is_public = scope.access != "private" and in_public

    def open(self, number):
        d = self.current
        head = flat(d.text)
        if match := re.match(r"(?:inline )?namespace ?([\w:]*)", head):
            d.kind = "namespace"
            self.scopes[-1].run = ([], -1)
            self.scopes.append(Scope("namespace", match[1]))
            self.current = self.last = None
        elif "(" not in head and "=" not in head and (match := TYPE.search(head)):
            d.kind, d.names = ("enum" if "enum" in head else "type"), [match[1]]
            access = "private" if re.search(r"\bclass\b", head) and d.kind == "type" else "public"
            self.found.append(d)
            self.scopes.append(Scope(d.kind, match[1], access, d))
            self.current = None
        else:
            self.depth = 1
            d.text += "{"
            self.scopes.append(Scope("body"))

    def end_body(self, number, rest):
        self.scopes.pop()
        self.current.text += "}"
        head = flat(self.current.text)
        is_function = "(" in head and not re.search(r"(?<!@)= ?[^(]*\{", head.split("(")[0] + head.split(")")[-1])
        if is_function and not rest.lstrip().startswith((",", "{")):
            self.finish(number)

    def finish(self, number):
        d, self.current, self.last = self.current, None, self.current
        d.end = number
        if d.scope.kind == "enum":
            d.kind, d.names = "value", re.findall(r"^\w+", d.text)
        else:
            classify(d)
        if not d.is_first_of_run() and (d.kind == "field" and self.is_of_type(d) or re.search(r"= (delete|default)\s*$", d.text)):
            d.block = []
        if d.kind:
            self.found.append(d)

    def is_of_type(self, d):
        """Tells whether the comment of d's run stands before a type."""
        first = next((o for o in self.found if o.block_line == d.block_line and o.block), None)
        return first is not None and first.kind in ("type", "enum")


def read(text):
    """Returns a Reader: `found` has the declarations, `sections` [line, title, comment], `file_block` the first comment."""
    return Reader(text)


def installed(root):
    """Returns the paths of the installed headers, from the list in packaging/meson.build."""
    text = (root / "packaging/meson.build").read_text()
    paths = ["rewind.h"]
    for folder, names in re.findall(r"'([\w/]+)': \[([^\]]*)\]", text):
        paths += [f"{folder}/{name}.h" for name in re.findall(r"'(\w+)'", names)]
    return paths
