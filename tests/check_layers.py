#!/usr/bin/env python3
"""Checks that every #include respects the layers (docs/design.md). Usage: check_layers.py ROOT"""

import re
import sys
import tempfile
from pathlib import Path

FOLDERS = ["core", "backends", "data", "nn", "optim", "io", "examples", "tools", "benchmarks",
           "tests"]

# What the files below a path may include besides files of the same path. The longest path counts.
BACKEND = ["backends/listing.h", "core/backend.h", "core/cache_directory.h", "core/dtype.h", "core/error.h",
           "core/hash.h", "core/json_file.h", "core/shape.h", "shaders/"]
USER = ["core/", "nn/", "optim/", "io/", "data/", "backends/listing.h", "backends/open.h"]
PROJECT_RULES = {
    "core/": ["shaders/"],
    "backends/": BACKEND,  # open.*: chooses among the backends
    "backends/cpu/": BACKEND + ["backends/dry/"],  # every backend can be predicted
    "backends/vulkan/": BACKEND + ["backends/dry/"],
    "backends/dry/": BACKEND,
    "data/": ["core/cache_directory.h", "core/checked.h", "core/error.h", "io/file.h"],
    "nn/": ["core/"],
    "optim/": ["core/", "shaders/"],
    "io/": ["core/", "nn/", "optim/"],
    "examples/": USER,
    "tools/": USER + ["examples/common/"],
    "benchmarks/": USER + ["examples/common/", "shaders/"],  # they may time single kernels
    "tests/": [""],
}
# Who may include the headers of a library. Others than these, the C++ library and POSIX: nobody.
LIBRARY_RULES = {
    "fmt/": [""],
    "vulkan/": ["backends/vulkan/"],
    "zlib.h": ["data/", "io/", "tests/"],
    "unicode/": ["data/", "tests/"],  # ICU
    "doctest/": ["tests/"],
    "CLI/": ["examples/", "tools/", "benchmarks/", "tests/fuzz/"],
    "nlohmann/": ["backends/vulkan/", "io/", "examples/", "tools/", "benchmarks/", "tests/"],
}
SYSTEM = re.compile(r"[a-z_0-9]+$|(sys/)?[a-z]+\.h$")  # <vector>, <unistd.h>, <sys/stat.h>
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def starts(name, prefixes):
    return any(name.startswith(p) for p in prefixes)


def folder_rule(path):
    return max((p for p in PROJECT_RULES if path.startswith(p)), key=len)


def allowed(root, path, bracket, included):
    if bracket == '"':
        if not (root / included).is_file():
            return False  # project includes are written from the root
        own = folder_rule(path)
        return included.startswith(own) or starts(included, PROJECT_RULES[own])
    for library, users in LIBRARY_RULES.items():
        if included.startswith(library):
            return starts(path, users)
    return SYSTEM.match(included) is not None


def violations(root):
    """(files read, a line for each include that breaks a rule)"""
    found = []
    files = [f for d in FOLDERS for f in sorted((root / d).rglob("*")) if f.suffix in (".h", ".cpp")]
    for file in files:
        path = file.relative_to(root).as_posix()
        if path.startswith("tests/install/"):
            continue  # another project: it sees the installed headers only
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and not allowed(root, path, *match.groups()):
                found.append(f"{path}:{number}: {line.strip()}")
    return len(files), found


def self_test():
    """The check must find planted violations, and nothing else."""
    good = ["core/error.h", "core/tensor.h", "backends/vulkan/vk.h", "nn/module.h"]
    lines = {
        "core/tape.cpp": ['#include "core/tensor.h"', "#include <vector>", "#include <fmt/format.h>"],
        "backends/vulkan/device.cpp": ["#include <vulkan/vulkan.h>", '#include "core/error.h"'],
        "core/bad.cpp": ["#include <vulkan/vulkan.h>", '#include "backends/vulkan/vk.h"'],
        "backends/cpu/bad.cpp": ['#include "core/tensor.h"', '#include "backends/vulkan/vk.h"'],
        "optim/bad.cpp": ['#include "nn/module.h"'],
        "data/bad.cpp": ["#include <boost/any.hpp>", '  #  include "core/tensor.h"', '#include "error.h"'],
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in good:
            lines[path] = []
        for path, text in lines.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("\n".join(text))
        found = violations(root)[1]
    expected = {f"{p}:{n}" for p in lines if p.endswith("bad.cpp") for n in range(1, len(lines[p]) + 1)}
    missed = {":".join(f.split(":")[:2]) for f in found} ^ expected
    if missed:
        sys.exit("the layer check is wrong about its planted includes: " + ", ".join(sorted(missed)))


self_test()
count, broken = violations(Path(sys.argv[1]))
if broken or not count:
    print("\n".join(broken))
    sys.exit(f"{len(broken)} includes cross the layers in {count} files")
print(f"{count} files respect the layers")
