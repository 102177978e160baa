#!/usr/bin/env python3
"""Checks that comments on lines of their own are sentences, or say what a name is, as far as a program can tell: none begins with
a word that needs something before it ("Of a tile", "Which pages", "Is given a leaf"). No comment or docstring, nor one behind
code, begins with "What" in place of a noun ("What a user gave"). Usage: check_comments.py ROOT"""

import re
import sys
from pathlib import Path

FOLDERS = ("apps", "backends", "benchmarks", "core", "data", "dist", "examples", "io", "models", "nn", "ops", "optim", "planner",
           "python", "shaders", "tests", "tools", "trainer")
# A verb that asks or has no subject, a relative pronoun, a conjunction. "Do not", "Of these", "That is why" may begin a sentence.
VERBS = "Is|Are|Was|Were|Has|Have|Had|Does|Do|Did|Can|May|Must|Will|Would|Should|Could"
FRAGMENT = re.compile(rf"(?:(?:{VERBS})\b(?! not\b)|Of\b(?! (?:these|those)\b)|That\b(?! (?:is|was)\b)|(?:Which|Who|Whose|Whom|What|And|Or)\b)")
COMMENT = re.compile(r"\s*//(?!!) ?(.*)")
WHAT_BEHIND_CODE = re.compile(r".*\S\s+// ?([Ww]hat\b.*)")
WHAT_IN_SCRIPT = re.compile(r"""\s*(?:r?\"{3}|#) ?(What\b.*)""")


def fragments(path, text):
    found, inside = [], False
    for number, line in enumerate(text.split("\n"), 1):
        comment = COMMENT.fullmatch(line)
        if comment and not inside and FRAGMENT.match(comment[1]):
            found.append(f"{path}:{number}: {comment[1]}")
        behind = None if comment else WHAT_BEHIND_CODE.fullmatch(line)
        if behind:
            found.append(f"{path}:{number}: {behind[1]}")
        inside = bool(comment)
    return found


def script_fragments(path, text):
    found, inside = [], False
    for number, line in enumerate(text.split("\n"), 1):
        comment = WHAT_IN_SCRIPT.fullmatch(line)
        if comment and not inside:
            found.append(f"{path}:{number}: {comment[1]}")
        inside = line.lstrip().startswith("#")
    return found


def self_test():
    """The check must find planted fragments, and nothing else."""
    planted = """// Of a tile.
int a;  // of it
// The rest
// Of a line above is no beginning.
// Is it here?

// Is it here?
int b;
// Of these, the last one counts.
int c;
// That is why.
// Do not move it.

// Which shaders there are.
//! Is a key of a shader.
// What a user gave.

int d;  // what a user gave
int e;  // says what a user gave"""
    wanted = ["f:1: Of a tile.", "f:7: Is it here?", "f:14: Which shaders there are.", "f:16: What a user gave.",
              "f:18: what a user gave"]
    script = """# What a user gave.
# It is not
# What a user wants.
def f():
    \"""What is here.\"""
    \"""Says what is here.\"""
    return What"""
    wanted_of_script = ["s:1: What a user gave.", 's:5: What is here.\"""']
    if fragments("f", planted) != wanted or script_fragments("s", script) != wanted_of_script:
        sys.exit(f"the check of comments is wrong about planted ones: {fragments('f', planted)} {script_fragments('s', script)}")


def main():
    self_test()
    root, found, count = Path(sys.argv[1]), [], 0
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".h", ".cpp", ".comp", ".glsl"):
                count += 1
                found += fragments(file.relative_to(root), file.read_text())
            elif file.suffix in (".py", ".sh") or file.name == "meson.build":
                count += 1
                found += script_fragments(file.relative_to(root), file.read_text())
    if found or not count:
        print("\n".join(found))
        sys.exit(f"{len(found)} comments begin as fragments of sentences")
    print(f"no comment of {count} files begins as a fragment")


if __name__ == "__main__":
    main()
