#!/usr/bin/env python3
"""Writes units, each of which includes several source files of a room: half of the time of compiling one file goes into
headers, and a unit reads them once. Prints the paths of the units, as seen from BASE; a file that is alone in its unit
stays as it is. Usage: units.py ROOT FOLDER BYTES TARGET BASE SOURCE... A unit has at most BYTES of sources, or one file."""

import functools
import os
import re
import sys
from pathlib import Path


SMALLER = {"ops": 0.3}  # so that a changed op is in a program after ten seconds
HUB = "core/tensor/tensor.h"  # half of the sources see it, in units of their own: a change of it spares the others


@functools.cache
def included(path):
    """Returns the project's files that a file includes."""
    names = re.findall(r'^\s*#include "(.*)"', Path(path).read_text("utf-8"), re.M)
    beside = [os.path.normpath(os.path.join(os.path.dirname(path), name)) for name in names]
    return {file for pair in zip(names, beside) for file in pair if os.path.exists(file)}


def sees_hub(source):
    found, new = set(), {str(source)}
    while new and HUB not in found:
        found |= new
        new = set().union(*map(included, new)) - found
    return HUB in found


def grouped(sources, most):
    """Returns lists of sources of the same room, which see the hub or do not, each of at most `most` bytes, or that share of
    them."""
    kinds = {}
    for source in sources:
        kinds.setdefault((source.parts[0], sees_hub(source)), []).append(source)
    groups = []
    for (room, _), alike in kinds.items():
        groups.append([])
        size = 0
        for source in alike:
            more = source.stat().st_size
            if groups[-1] and size + more > most * SMALLER.get(room, 1):
                groups.append([])
                size = 0
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
