#!/usr/bin/env python3
"""Writes units, each of which includes several source files of a room: half of the time of compiling one file goes into
headers, and a unit reads them once. Prints the paths of the units, as seen from BASE; a file that is alone in its unit
stays as it is. Usage: units.py ROOT FOLDER BYTES TARGET BASE SOURCE... A unit has at most BYTES of sources, or one file."""

import os
import sys
from pathlib import Path


SMALLER = {"ops": 0.3}  # so that a changed op is in a program after ten seconds


def grouped(sources, most):
    """Returns lists of neighbours of the same room, each of at most `most` bytes, or that share of them."""
    groups, room, size = [], None, 0
    for source in sources:
        more = source.stat().st_size
        if not groups or source.parts[0] != room or size + more > most * SMALLER.get(room, 1):
            groups.append([])
            room, size = source.parts[0], 0
        groups[-1].append(source)
        size += more
    return groups


def main():
    root, folder, most, target, base, *sources = sys.argv[1:]
    folder = Path(folder) / target
    os.chdir(root)
    folder.mkdir(parents=True, exist_ok=True)
    for group in grouped([Path(os.path.relpath(source, root)) for source in sources], int(most)):
        unit = group[0].resolve()
        if len(group) > 1:
            unit = folder / "-".join(group[0].parts)
            text = "".join(f'#include "{source.as_posix()}"\n' for source in group)
            if not unit.exists() or unit.read_text() != text:
                unit.write_text(text)
        path = os.path.relpath(unit, base)  # relative, so that compilers' caches serve other clones, too
        print(path if os.path.exists(os.path.join(base, path)) else unit)  # not below a symbolic link


if __name__ == "__main__":
    main()
