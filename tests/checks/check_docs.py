#!/usr/bin/env python3
"""Checks that every public name of an installed header has a comment, by the rule of docs/site/headers.py:
types, functions, members, values of enums, aliases. Usage: check_docs.py ROOT

Names that a comment elsewhere, or the language, explains need none of their own:
- constructors, assignments and the like, destructors, functions that are `= default` or `= delete`: the type's comment;
- overrides: the comment of the function that they override;
- members that are defined after their class: the comment in it;
- fields and values that the comment of their type names;
- declarations without a definition, and names outside of namespace rw (fmt::formatter)."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "docs/site"))
sys.dont_write_bytecode = True
import headers  # noqa: E402
import reference  # noqa: E402


def is_exempt(d):
    owner = d.scope.owner
    if not d.is_public:
        return True
    if d.kind == "function" and owner:
        text = headers.flat(d.text)
        made = d.names[0].lstrip("~") == owner.names[0] or d.names[0] == "operator=" or text.endswith(
            ("= default", "= delete"))
        return made and bool(owner.comment()) or bool(re.search(r"\boverride\b", text))
    if d.kind == "function" and re.search(rf"\w::{re.escape(d.names[0])} ?\(", headers.flat(d.text)):
        return True
    if d.kind in ("field", "value") and owner:
        words = set(re.findall(r"\w+", " ".join(owner.comment())))
        return words.issuperset(d.names)
    return False


def undocumented(path, text):
    """Returns (names that need a comment, a line for each that has none)."""
    count, found = 0, []
    reader = headers.read(text)
    if not reader.file_block:
        found.append(f"{path}:1: the file itself")
    for d in reader.found:
        count += len(d.names) if d.is_public else 0
        inside = f"{d.scope.name}::" if d.scope.owner else ""
        if not d.comment() and not is_exempt(d):
            found += [f"{path}:{d.line + 1}: {d.kind} {inside}{name}" for name in d.names]
    return count, found


PLANTED = """// What the file is.
#pragma once

namespace rw {

class Later;
struct Bare {
  int a = 0, b = 1;  // of it
  double c{2};
  // Of a run:
  int d = f(1, 2);
  int e;

  int g;
};

// With a comment that names x and red. Its constructor needs none.
class [[nodiscard]] Good final : public Base {
 public:
  explicit Good(int n) : n_{n} {}
  ~Good() override;
  Good(const Good&) = delete;
  bool operator==(const Good&) const = default;
  int x;
  enum class Color { red, green };  // red: seen
  void draw() override { int inner = 0; }
  bool operator<(const Good& other) const;
  std::function<int(int)> call = [](int i) { return i; };
  void (*pointer)(int);
  template <class T>
  requires(sizeof(T) > 1)
  void many(const std::map<int, T>& all = {}) {
    if (all.empty()) return;

    work();
  }

 protected:
  int seen_;

 private:
  int n_;
};

// ---- a section ----
using Short = int;
template <class T>
concept Nice = requires(T t) { t.f(); };
Good one(const char* s = "//;{");  // this
                                   // and that
Good two();

/* */ inline constexpr int limit = 3;
// About both.
struct Both {};
Both both();
enum Values {
  first,  // the first
  second,
};
#define NOTHING  // no declaration
inline int Good::later() const { return 1; }

}  // namespace rw

template <>
struct fmt::formatter<rw::Good> {
  int parse();
};
"""
MISSING = """7: type Bare
9: field Bare::c
14: field Bare::g
25: value Color::green
27: function Good::operator<
28: field Good::call
29: field Good::pointer
30: function Good::many
39: field Good::seen_
46: alias Short
47: type Nice
51: function two
53: field limit
59: value Values::second"""


def self_test():
    """The check must find planted names without a comment, and nothing else."""
    found = undocumented("a.h", PLANTED)[1]
    expected = ["a.h:" + line for line in MISSING.split("\n")]
    wrong = sorted(set(found) ^ set(expected))
    if wrong or undocumented("b.h", "#pragma once\n")[1] != ["b.h:1: the file itself"]:
        sys.exit("the check of comments is wrong about its planted names:\n" + "\n".join(wrong))


def main():
    root = Path(sys.argv[1])
    self_test()
    reference.self_test()
    count, found = 0, []
    paths = headers.installed(root)
    for path in paths:
        names, missing = undocumented(path, (root / path).read_text())
        count, found = count + names, found + missing
    if found or not count:
        print("\n".join(found))
        sys.exit(f"{len(found)} of {count} public names have no comment")
    print(f"{count} public names of {len(paths)} headers have a comment")


if __name__ == "__main__":
    main()
