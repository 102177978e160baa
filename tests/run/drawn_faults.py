"""Draws faults by a rule, so that not those who wrote a line choose what is tested on it: branches are turned around, and
operators replaced, on lines of the rooms' sources that no fault of the table stands on."""
import glob
import os
import random
import re

import mutant_table as table

NEED_A_DRIVER, NEED_A_LIBRARY, LONG = {"fork"}, {"monitor"}, {"long_loops"}
CASES_OF_A_DRIVER = "process memory: the Vulkan device*,process memory: uploads of 1 GiB*"  # in files with others
ROOMS = ("core", "io", "ops", "optim", "planner")
SWAPS = {" + ": " - ", " - ": " + ", " * ": " / ", " / ": " * ", " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ",
         " == ": " != ", " != ": " == ", " && ": " || ", " || ": " && ", "std::min(": "std::max(", "std::max(": "std::min("}
OPERATOR = re.compile("|".join(re.escape(o) for o in sorted(SWAPS, key=len, reverse=True)))
# Faults that make no difference, each with the reason.
EXPLAINED = os.path.join(table.TESTS, "mutants", "drawn", "explained.txt")
# An expression that a statement on one line returns, assigns or begins with.
EXPRESSION = re.compile(r"^\s+(?:return |(?:const )?[\w:]+ \w+ = |[\w.\[\]>-]+ [+*-]?= )(?P<expression>[^;={}\"'\[\]]+);$")
# A line that cannot hold a switch, or is no statement of the program, has one of these.
UNFIT = re.compile(r"^\s*(//|#|static|constexpr|template|using|case )|\bconstexpr\b|\bstatic_assert|decltype|\bauto&")


def condition(line):
    """Returns the condition of an `if` on this line, or nothing."""
    found = re.match(r"\s+(?:\} else )?if \(", line)
    if not found:
        return None
    depth = 1
    for end in range(found.end(), len(line)):
        depth += (line[end] == "(") - (line[end] == ")")
        if depth == 0:
            inside = line[found.end():end]
            is_declaration = re.search(r"(?<![=!<>])=(?!=)", inside) or ";" in inside
            return None if is_declaration else inside
    return None


def replaced(expression, at):
    return expression[:at.start()] + SWAPS[at[0]] + expression[at.end():]


def sites(line):
    """Yields (text of the fault, its replacement) for each thing that may be wrong on a line."""
    if UNFIT.search(line):
        return
    inside = condition(line)
    if inside:
        yield line.strip().replace(inside, "{{" + inside + "}}", 1), f"!({inside})"
        for at in OPERATOR.finditer(inside):
            yield line.strip().replace(inside, "{{" + inside + "}}", 1), replaced(inside, at)
        return
    found = EXPRESSION.match(line)
    if found:
        before = line[:found.start("expression")].strip()
        for at in OPERATOR.finditer(found["expression"]):
            yield before + " {{" + found["expression"] + "}};", replaced(found["expression"], at)


def tests_of(room):
    """The tests of the room's folder, or of all rooms, that need neither a Vulkan driver, since host code is drawn, nor
    a library beside the test program, and that take seconds."""
    rooms = [room] if room else set(os.listdir(table.TESTS)) - {"backends"}
    names = {os.path.basename(f)[5:-4]
             for one in rooms for f in glob.glob(os.path.join(table.TESTS, one, "**", "test_*.cpp"), recursive=True)}
    return table.Tests(tuple(sorted(names - NEED_A_DRIVER - NEED_A_LIBRARY - LONG)), ("VK_DRIVER_FILES=none",), "", CASES_OF_A_DRIVER)


def taken_lines(path, source, faults):
    """The lines on which the table's faults stand."""
    lines = set()
    for fault in faults:
        if fault.file == path:
            begin, end = table.span(fault, source)
            lines |= set(range(source.count("\n", 0, begin), source.count("\n", 0, end) + 1))
    return lines


def key(fault):
    return fault.file, " ".join(fault.text.split()), " ".join(fault.new.split())


def candidates(faults):
    """Returns all faults that the rule allows, in the order of files and lines. Those of EXPLAINED have its reason."""
    out = []
    reasons = {key(fault): fault.survives for fault in table.read_table(EXPLAINED)}
    for room in ROOMS:
        tests = tests_of(room)
        for path in sorted(glob.glob(os.path.join(table.ROOT, room, "**", "*.cpp"), recursive=True)):
            name = os.path.relpath(path, table.ROOT)
            with open(path) as f:
                source = f.read()
            taken = taken_lines(name, source, faults)
            for number, line in enumerate(source.split("\n")):
                if number in taken:
                    continue
                for place, (text, new) in enumerate(sites(line)):
                    fault = table.Fault("drawn", f"{name}:{number + 1}.{place}", name, text, new, tests, place=f"{name}:{number + 1}")
                    try:
                        table.span(fault, source)
                    except table.TableError:
                        continue  # the text occurs twice
                    fault.survives = reasons.pop(key(fault), "")
                    out.append(fault)
    if reasons:
        raise table.TableError(f"{EXPLAINED}: the rule draws none of these: {sorted(reasons)}")
    return out


def draw(faults, count, seed):
    """Returns `count` of them on different lines: the same ones for a seed and a tree."""
    drawn, places = [], set()
    all_of_them = candidates(faults)
    random.Random(seed).shuffle(all_of_them)
    for fault in all_of_them:
        if len(drawn) < count and fault.place not in places:
            places.add(fault.place)
            drawn.append(fault)
    return drawn
