#!/usr/bin/env python3
"""Checks that an option which several programs have comes from one table, trainer/program/shared_options.cpp, so that
it means the same in all of them. Usage: check_options.py ROOT"""

import collections
import re
import sys
from pathlib import Path

TABLE = "trainer/program/shared_options.cpp"
FOLDERS = ["trainer", "apps", "tools", "benchmarks"]  # examples are programs of others, tests/fuzz is no program of users
OWN = re.compile(r'\badd_(?:option|flag)\w*\(\s*"(--[a-z0-9-]+)"')
SHARED = re.compile(r'\bshared_(?:option|flag)\(\s*[\w>-]+,\s*"(--[a-z0-9-]+)"')


def problems(table, sources):
    """Returns the options that break the rule; `sources` has texts by path."""
    rows = re.findall(r'\{"(--[a-z0-9-]+)",', table)
    own, shared = collections.defaultdict(list), collections.defaultdict(list)
    for path, text in sorted(sources.items()):
        for found, pattern in ((own, OWN), (shared, SHARED)):
            for name in pattern.findall(text):
                found[name].append(path)
    for name, paths in own.items():
        if name in rows:
            yield f"{paths[0]}: {name} is in the table: shared_option() or shared_flag() adds it"
        elif len(paths) > 1:
            yield f"{name} belongs in the table, as these have it: {', '.join(paths)}"
    for name in rows:
        if len(shared[name]) < 2:
            yield f"{TABLE}: {name} is of one program, or of none: {', '.join(shared[name])}"
    if rows != sorted(rows):
        yield f"{TABLE}: the table must be in the order of the alphabet"


def check_itself():
    table = '{"--a", "x"}, {"--b", "y"},'
    both = 'shared_option(app, "--a", a); shared_flag(app, "--b", o->b);'
    assert not list(problems(table, {"1": both, "2": both, "3": 'app.add_option("--c", c)'}))
    assert len(list(problems(table, {"1": both, "2": both + 'app.add_flag("--a", a)'}))) == 1
    assert len(list(problems(table, {"1": both, "2": both, "3": 'add_option("--c")', "4": 'add_flag(\n  "--c")'}))) == 1
    assert len(list(problems(table, {"1": both}))) == 2
    assert len(list(problems('{"--b", "y"}, {"--a", "x"},', {"1": both, "2": both}))) == 1


def main():
    check_itself()
    root = Path(sys.argv[1])
    sources = {str(path.relative_to(root)): path.read_text() for folder in FOLDERS
               for path in sorted((root / folder).rglob("*.cpp"))}
    table = sources.pop(TABLE)
    found = list(problems(table, sources))
    print(*found, sep="\n", end="\n" if found else "")
    if found:
        sys.exit(1)
    print(f"{len(sources)} files, options that several programs have are in one table")


main()
