"""Reads the faults of tests/mutants/*.txt, and writes them into sources (see CONTRIBUTING.md).

    # A comment.
    [optim/adam.cpp] optim update_kernels REWIND_LIKE_GPU=1 : adam*
    no-bias-correction: 1 - std::pow(beta, t) => 1
    starts-at-one: for (size_t i = {{0}}; i < n => 1
      tests: half
      survives: why no test can see it

The head of a section names a file and the tests that should see its faults: files test_NAME.cpp of tests/,
variables of the environment, and after a colon doctest's patterns of cases, after ! those left out. A fault is a name, a
text that the file holds exactly once (any white space is like any other), and its replacement; in braces is the part of
the text that is replaced. A text that ends with ; or } is a statement, anything else an expression. Indented lines
continue the line before.
"""
import glob
import hashlib
import os
import re
from dataclasses import dataclass

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)

# Files that are pasted into others take the switch from these.
INCLUDERS = {"shaders/elementwise.def": ["ops/elementwise/elementwise.cpp",
                                         "backends/cpu/loops/elementwise.cpp", "backends/reference/loops/elementwise.h",
                                         "shaders/elementwise/elementwise.glsl", "shaders/elementwise/compare.comp"],
             "shaders/functions.h": ["backends/cpu/loops/functions.h", "shaders/elementwise/elementwise.glsl"]}

SWITCH_HEADER = "rewind_mutant.h"
SWITCH_CPP = """#pragma once
#include <cstdlib>
// The fault that is switched on; 0: none.
inline const unsigned rewind_mutant = [] {
  const char* text = std::getenv("REWIND_MUTANT");
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 0u;
}();
#define REWIND_MUTANT(number) (::rewind_mutant == number)
"""
# The blank before `layout` hides it from the shader compiler, which would take the constant for a choice of calls.
SWITCH_GLSL = """#ifndef REWIND_MUTANT
 layout(constant_id = 120) const uint rewind_mutant = 0;
#define REWIND_MUTANT(number) (rewind_mutant == number)
#endif
"""
# This gives shaders the number.
PIPELINES = ("backends/vulkan/pipelines/pipelines.cpp", "{kBrainId, key.brain},",
             "{kBrainId, key.brain}, {120u, ::rewind_mutant},")


class TableError(Exception):
    pass


@dataclass(frozen=True)
class Tests:
    files: tuple
    environment: tuple
    cases: str
    without: str

    @staticmethod
    def parse(text):
        words, _, cases = (" " + text + " ").partition(" : ")
        cases, _, without = cases.partition("!")
        words = words.split()
        return Tests(tuple(w for w in words if "=" not in w), tuple(w for w in words if "=" in w),
                     cases.strip(), without.strip())

    def options(self):
        out = ["--source-file=" + ",".join(f"*/test_{name}.cpp" for name in self.files)]
        out += ["--test-case=" + self.cases] if self.cases else []
        return out + (["--test-case-exclude=" + self.without] if self.without else [])


@dataclass
class Fault:
    room: str
    name: str
    file: str
    text: str
    new: str
    tests: Tests
    survives: str = ""
    place: str = ""

    @property
    def full_name(self):
        return f"{self.room}/{self.name}"

    @property
    def number(self):
        """Returns a number from its name, so that another fault in the table changes no other file."""
        return int(hashlib.sha256(self.full_name.encode()).hexdigest()[:7], 16) + 1

    def switched(self, old):
        """Returns a text that means `old`, or the fault if it is switched on."""
        condition = f"REWIND_MUTANT({self.number}u)"
        if old.rstrip().endswith((";", "}")):
            return f"if ({condition}) {{ {self.new} }} else {{ {old} }}"
        return f"({condition} ? ({self.new}) : ({old}))"


def logical_lines(path):
    """Returns (number, text) of the lines of a table, without comments and with continued lines joined."""
    lines = []
    with open(path) as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip()
            if not line or line.startswith("#"):
                continue
            if line.startswith(" ") and not re.match(r" +(tests|survives): ", line):
                if not lines:
                    raise TableError(f"{path}:{number}: nothing to go on with")
                lines[-1] = (lines[-1][0], lines[-1][1] + " " + line.strip())
            else:
                lines.append((number, line))
    return lines


def read_table(path):
    room = os.path.splitext(os.path.basename(path))[0]
    faults, file, tests = [], None, None
    for number, line in logical_lines(path):
        place = f"{os.path.relpath(path, ROOT)}:{number}"
        head = re.fullmatch(r"\[(\S+)\] (.+)", line)
        more = re.fullmatch(r" +(tests|survives): (.+)", line)
        fault = re.fullmatch(r"([\w-]+): (.+?) =>(?: (.*))?", line)
        if head:
            file, tests = head[1], Tests.parse(head[2])
        elif more and faults:
            setattr(faults[-1], more[1], Tests.parse(more[2]) if more[1] == "tests" else more[2])
        elif fault and file:
            faults.append(Fault(room, fault[1], file, fault[2], fault[3] or "", tests, place=place))
        else:
            raise TableError(f"{place}: neither a head, a fault, tests nor survives: {line}")
    return faults


def read_tables(folder=os.path.join(TESTS, "mutants")):
    faults = [f for path in sorted(glob.glob(os.path.join(folder, "*.txt"))) for f in read_table(path)]
    numbers = {}
    for fault in faults:
        other = numbers.setdefault(fault.number, fault)
        if other is not fault:
            raise TableError(f"{fault.place}: {fault.full_name} has the number of {other.full_name}: rename it")
    return faults


def pattern(text):
    return r"\s+".join(re.escape(word) for word in text.split())


def span(fault, source):
    """Returns the place of the part of `source` that the fault replaces."""
    before, opening, rest = fault.text.partition("{{")
    part, closing, after = rest.partition("}}")
    if not opening:
        before, part, after = "", fault.text, ""
    elif not closing:
        raise TableError(f"{fault.place}: {fault.full_name}: braces that do not close")
    # Between the parts there may be white space, or none.
    expression = pattern(before) + (r"\s*" if before else "") + f"({pattern(part)})" + (
        r"\s*" + pattern(after) if after else "")
    found = list(re.finditer(expression, source))
    if len(found) != 1:
        raise TableError(f"{fault.place}: {fault.full_name}: {fault.file} must hold this once, "
                         f"and does {len(found)} times: {fault.text}")
    return found[0].span(1)


def rewrite(source, faults):
    """Returns `source` with a switch at each fault's place."""
    places, errors = {}, []
    for fault in faults:
        try:
            places.setdefault(span(fault, source), []).append(fault)
        except TableError as e:
            errors.append(str(e))
    end = len(source)
    for (begin, stop), several in sorted(places.items(), reverse=True):
        if stop > end:
            errors.append(f"{several[0].place}: {several[0].full_name}: its text overlaps another fault's")
        text = source[begin:stop]
        for fault in several:
            text = fault.switched(text)
        source = source[:begin] + text + source[stop:]
        end = begin
    if errors:
        raise TableError("\n".join(errors))
    return source


def with_switch(path, source):
    """Returns `source` with the declarations that its faults need at its beginning."""
    if path.endswith((".comp", ".glsl")):
        head = re.match(r"(?://!.*\n)*", source).end()  # the shader's manifest stays first
        return source[:head] + SWITCH_GLSL + source[head:]
    return f'#include "{"../" * path.count("/")}{SWITCH_HEADER}"\n' + source


def rewritten(faults, read):
    """Returns {path: text} of the files that change. `read` returns the text of a path."""
    by_file = {}
    for fault in faults:
        by_file.setdefault(fault.file, []).append(fault)
    out, switches, errors = {}, set(), []
    for path, several in by_file.items():
        switches.update(INCLUDERS.get(path, [path]))
        try:
            out[path] = rewrite(read(path), several)
        except TableError as e:
            errors.append(str(e))
    if errors:
        raise TableError("\n".join(errors))
    path, old, new = PIPELINES
    text = out.get(path) or read(path)
    if text.count(old) != 1:
        raise TableError(f"{path} must hold once, to give shaders the fault's number: {old}")
    out[path] = text.replace(old, new)
    for path in switches | {path}:
        out[path] = with_switch(path, out.get(path) or read(path))
    out[SWITCH_HEADER] = SWITCH_CPP
    return out


def check_tests(faults):
    for fault in faults:
        for name in fault.tests.files:
            if not glob.glob(os.path.join(TESTS, "**", f"test_{name}.cpp"), recursive=True):
                raise TableError(f"{fault.place}: there is no tests/**/test_{name}.cpp")
        if not fault.tests.files:
            raise TableError(f"{fault.place}: {fault.full_name} names no tests")
