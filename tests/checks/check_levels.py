#!/usr/bin/env python3
"""Checks that objects of the cpu backend's loops define nothing with which code for every processor could be linked: all
symbols that others see belong to the level's namespace. Usage: check_levels.py FOLDER, which has the objects
(libloops_LEVEL.a.p/*.o)"""

import re
import subprocess
import sys
from pathlib import Path


def foreign(listing, level):
    """Returns the symbols of nm's listing that are neither local, nor undefined, nor of the level."""
    found = []
    for line in listing.splitlines():
        match = re.match(r"[0-9a-f]+ (\S) (.*)", line.strip())
        # Names of instances begin with what they return.
        if match and match[1].isupper() and f"rw::cpu::{level}::" not in re.sub(r"__vector\(\d+\)", "", match[2]).split("(")[0]:
            found.append(match[2])
    return found


def main():
    assert foreign("00 W std::max(int)\n00 t f\n  U memcpy\n00 T rw::cpu::v3::f(int)", "v3") == ["std::max(int)"]
    assert not foreign("00 W float __vector(16) rw::cpu::v3::f<int>(int)", "v3")
    assert foreign("00 W rw::cpu::v2::f(rw::cpu::v3::A)", "v3") == ["rw::cpu::v2::f(rw::cpu::v3::A)"]
    objects = sorted(Path(sys.argv[1]).glob("libloops_*.a.p/*.o"))
    assert objects, "no objects"
    broken = []
    for file in objects:
        level = re.fullmatch(r"libloops_(\w+)\.a\.p", file.parent.name)[1]
        listing = subprocess.run(["nm", "-C", file], check=True, capture_output=True, text=True).stdout
        broken += [f"{file.parent.name}/{file.name}: {symbol}" for symbol in foreign(listing, level)]
    print("\n".join(broken) or f"{len(objects)} objects: all that others see is of their level")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
