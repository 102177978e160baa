#!/usr/bin/env python3
"""Prints the sizes of the rooms, as lines of code and types of headers, beside those of the last release in
tests/checks/size.txt, so that growth is seen in review. Fails if a file or a folder is too long to be known by heart; CONTRIBUTING.md
wants files of 400 lines, and those above are named. Usage: check_size.py ROOT [--release: writes size.txt anew]"""

import re
import sys
import tempfile
from pathlib import Path

CODE = {".h", ".cpp", ".comp", ".glsl", ".py", ".sh"}
TYPE = re.compile(r"^\s*(?:class|struct|union|enum(?: class)?)\s+(?:\[\[\w+\]\]\s*)?\w+[^;{}()]*\{", re.M)
LONG, LONGEST = 400, 520  # lines of a file: above the first it is named, above the second refused
MOST_FILES = 25           # of a folder
LISTS = {"benchmarks/results"}  # one file for each measurement


def measure(root):
    """Returns ({room: (lines, types)}, files of more than LONG lines, a line for each file or folder that is too long)."""
    rooms, long, broken, folders = {}, [], [], {}
    for room in sorted(f.parent.name for f in root.glob("*/meson.build")):
        lines = types = 0
        for file in sorted((root / room).rglob("*")):
            if file.suffix not in CODE or not file.is_file():
                continue
            text, path = file.read_text(), file.relative_to(root)
            count = len(text.splitlines())
            lines, types = lines + count, types + (len(TYPE.findall(text)) if file.suffix == ".h" else 0)
            folders[path.parent.as_posix()] = folders.get(path.parent.as_posix(), 0) + 1
            if count > LONG:
                long.append(f"{path} {count}")
            if count > LONGEST:
                broken.append(f"{path} has {count} lines: more than {LONGEST}")
        rooms[room] = (lines, types)
    broken += [f"{folder}/ has {n} files: more than {MOST_FILES}, make rooms" for folder, n in sorted(folders.items())
               if n > MOST_FILES and folder not in LISTS]
    return rooms, long, broken


def table(now, then):
    rows = [f"{'':12}{'lines':>8}{'then':>8}{'':>8}{'types':>8}{'then':>6}{'':>6}"]
    sums = {"all": tuple(sum(r[i] for r in now.values()) for i in (0, 1))}
    before = dict(then, all=tuple(sum(r[i] for r in then.values()) for i in (0, 1)))
    for room, (lines, types) in (now | {r: (0, 0) for r in then if r not in now} | sums).items():
        was = before.get(room, (0, 0))
        rows.append(f"{room:12}{lines:8}{was[0]:8}{lines - was[0]:+8}{types:8}{was[1]:6}{types - was[1]:+6}")
    return "\n".join(rows)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        texts = {"core/meson.build": "", "core/a.h": "class A;\nclass B final : public A {\n  enum class C { c };\n};\nstruct D f();\n",
                 "core/b.cpp": "struct E {};\n" * (LONGEST + 1), "core/c.txt": "text\n", "build/x.cpp": "\n"}
        texts |= {f"core/many/{i}.py": "" for i in range(MOST_FILES + 1)}
        for path, text in texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        rooms, long, broken = measure(root)
    if rooms != {"core": (LONGEST + 6, 2)} or long != [f"core/b.cpp {LONGEST + 1}"] or len(broken) != 2:
        sys.exit(f"the check of sizes is wrong about its planted tree: {rooms} {long} {broken}")
    if table({"core": (5, 2)}, {"core": (3, 1), "gone": (1, 1)}).split()[-7:] != ["all", "5", "4", "+1", "2", "2", "+0"]:
        sys.exit("the check of sizes adds up wrongly")


self_test()
ROOT, RELEASE = Path(sys.argv[1]), Path(__file__).with_name("size.txt")
sizes, over, wrong = measure(ROOT)
if "--release" in sys.argv:
    RELEASE.write_text("".join(f"{room} {lines} {types}\n" for room, (lines, types) in sizes.items()))
print(table(sizes, {room: (int(a), int(b)) for room, a, b in map(str.split, RELEASE.read_text().splitlines())}))
print(f"\n{len(over)} files of more than {LONG} lines: {', '.join(over)}")
if wrong:
    sys.exit("\n".join(wrong))
