#!/usr/bin/env python3
"""Checks that every #include respects the layers (docs/design.md). Usage: check_layers.py ROOT"""

import os
import re
import sys
import tempfile
from pathlib import Path

FOLDERS = ["core", "ops", "planner", "backends", "data", "nn", "models", "optim", "io", "dist", "trainer", "apps", "examples", "tools",
           "benchmarks", "python", "tests"]

# The includes that the files below a path may have besides files of the same path. The longest path counts.
# The floors of the library are in the order in which they stand on each other, and so are the rooms of a floor.
BASE = ["core/base/", "core/blocks/", "core/files/"]
BACKEND = BASE + ["core/backend/"]
ARENA = BACKEND + ["core/arena/"]
MEMORY = ARENA + ["core/memory/"]
TENSOR = MEMORY + ["core/tensor/"]
AUTOGRAD = TENSOR + ["core/autograd/"]
OPS = AUTOGRAD + ["ops/" + header for header in (
    "autocast.h", "lockstep.h", "numeric.h", "operators.h", "ops.h", "print.h", "statistics.h", "layout/indexing.h",
    "layout/unbind.h", "losses/ctc.h", "losses/losses.h", "losses/rnnt.h", "network/block_matrix.h", "network/conv.h",
    "network/positions.h", "network/vision.h", "numerics/overflow.h")]
GRAPH = BASE + ["planner/graph/"]
SEARCH = GRAPH + ["planner/search/"]
FOLLOW = OPS + GRAPH + ["planner/dry_run.h", "planner/forecast.h", "planner/follow/"]
PLANNED = FOLLOW + SEARCH + ["planner/auto_recompute.h", "planner/timeline/"]
LAYERS = OPS + ["nn/"]
DRIVERS = BACKEND + ["backends/call_cache.h", "backends/kernel_sums.h", "backends/listing.h", "shaders/"]
VULKAN_DEVICE = DRIVERS + ["backends/vulkan/device/"]
VULKAN_PASSES = VULKAN_DEVICE + ["backends/vulkan/passes/"]
VULKAN_MATRIX = VULKAN_PASSES + ["backends/vulkan/matrix/"]
VULKAN_PIPELINES = VULKAN_MATRIX + ["backends/vulkan/pipelines/"]
DATA = BASE + ["data/base/"]
OPTIM_BASE = OPS + ["planner/environment.h", "shaders/", "optim/schedules/"]
OPTIM = OPTIM_BASE + ["optim/base/"]
MODEL_FILES = OPS + ["nn/", "models/", "io/formats/", "optim/base/state_parts.h"]
USER = ["core/", "ops/", "planner/", "nn/", "models/", "optim/", "io/", "dist/", "data/", "backends/listing.h",
        "backends/launches.h", "backends/monitor/", "backends/open.h", "backends/tune.h"]
PROJECT_RULES = {
    "core/base/": [],
    "core/blocks/": ["core/base/", "shaders/"],
    "core/files/": ["core/base/"],
    "core/backend/": BASE,
    "core/arena/": BACKEND,
    "core/memory/": ARENA,
    "core/tensor/": MEMORY + ["shaders/"],
    "core/autograd/": TENSOR,
    "ops/": AUTOGRAD + ["shaders/"],
    "planner/graph/": BASE,  # pure functions of a graph
    "planner/search/": GRAPH,  # likewise, but for the search, which measures plans by dry runs
    "planner/search/candidate.": FOLLOW,
    "planner/search/recompute_options.": FOLLOW,
    "planner/search/search.": FOLLOW + SEARCH,
    "planner/": OPS,
    "planner/auto_recompute.": PLANNED,
    "planner/environment.": PLANNED,
    "planner/memory.": PLANNED + ["planner/environment.h"],
    "planner/timeline/": MEMORY,
    "planner/follow/": FOLLOW,
    "planner/forecast/": PLANNED,
    "planner/choices/": PLANNED + ["planner/forecast/"],
    "backends/": OPS + ["backends/", "shaders/", "profile_folders.h"],  # they choose among the backends, and try them
    "backends/monitor/": [],
    "backends/reference/": DRIVERS + ["backends/dry/"],  # every backend can be predicted
    "backends/cpu/": DRIVERS + ["backends/dry/", "backends/reference/"],
    "backends/vulkan/": DRIVERS + ["backends/cpu/cpu_backend.h", "backends/dry/", "backends/vulkan/"],
    "backends/vulkan/device/": DRIVERS,
    "backends/vulkan/passes/": VULKAN_DEVICE,
    "backends/vulkan/matrix/": VULKAN_PASSES,
    "backends/vulkan/pipelines/": VULKAN_MATRIX,
    "backends/vulkan/commands/": VULKAN_DEVICE,
    "backends/vulkan/tuning/": VULKAN_MATRIX,
    "backends/dry/": DRIVERS,
    "data/": DATA + ["data/"],
    "data/base/": BASE,
    "data/chat/": DATA + ["data/tokenizers/"],
    "data/images/": DATA,
    "data/speech/": DATA,
    "data/text/": DATA,
    "data/tokenizers/": DATA,
    "nn/": OPS,
    "models/": LAYERS,
    "optim/": OPTIM,
    "optim/schedules/": OPS + ["shaders/"],
    "optim/base/": OPTIM_BASE,
    "optim/accumulation/": OPTIM,
    "optim/numerics/": OPTIM,
    "io/formats/": OPS,
    "io/models/": MODEL_FILES,
    "io/snapshot/": MODEL_FILES + ["io/models/", "optim/"],
    "dist/world/": BASE + ["core/backend/"],
    "dist/": OPS + ["optim/", "dist/world/", "planner/forecast/program.h"],
    "rewind.h": USER,
    "trainer/": USER + ["trainer/"],
    "trainer/report/": USER,
    "trainer/program/": USER + ["trainer/report/"],
    "trainer/loop/": USER + ["trainer/program/"],
    "apps/": USER + ["trainer/", "apps/common/"],
    "examples/": [],  # as programs outside of the tree: <rewind/...>
    "tools/": USER + ["trainer/", "apps/common/"],
    "python/": [],  # likewise
    "benchmarks/": USER + ["trainer/", "apps/common/", "shaders/"],  # they may time single kernels
    "tests/": [""],
}
LIBRARY = ("core/", "ops/", "planner/", "backends/", "data/", "nn/", "models/", "optim/", "io/", "dist/",
           "trainer/")
MOST_FILES = 25  # of a folder
GENERATED = {"shaders/reference_kernels.h", "ops/op_list.inc", "ops/op_rows.inc", "profile_folders.h"}  # by compile.py, op_list.py, Meson
# Members that are defined elsewhere: those of Tensor that need a room above its own.
ELSEWHERE = {"Tensor::operator[]", "Tensor::backward", "Tensor::register_hook",
             "Tensor::register_post_accumulate_grad_hook", "Tensor::retain_grad",
             "Tensor::to_vector", "Tensor::to_ints", "Tensor::item",
             "Tensor::set_grad", "Tensor::copy_"}
# The folders that may include the headers of a library. Nobody may include others, besides the C++ library and POSIX.
LIBRARY_RULES = {
    "fmt/": [""],
    "nanobind/": ["python/"],
    "rewind/": ["examples/", "python/", "tests/"],  # as programs outside of the tree see it
    "vulkan/": ["backends/vulkan/", "benchmarks/probe/"],
    "zlib.h": ["data/", "io/", "tests/"],
    "unicode/": ["data/", "tests/"],  # ICU
    "png.h": ["data/", "tests/"],
    "i915_drm.h": ["tests/stand_ins/"],
    "jpeglib.h": ["data/", "tests/"],
    "jerror.h": ["data/"],
    "webp/": ["data/"],
    "sndfile.h": ["data/", "tests/"],
    "oneapi/dnnl/": ["backends/cpu/"],
    "mpi.h": ["dist/world/mpi_world.cpp"],
    "sys/mman.h": ["tests/", "backends/reference/"],  # memory in large pages; a mapped file that is cut short ends the program: InputFile reads
    "doctest/": ["tests/"],
    "spirv-tools/": ["tests/"],
    "CLI/": ["trainer/", "apps/", "examples/", "tools/", "benchmarks/", "tests/fuzz/"],
    "nlohmann/": ["backends/vulkan/", "data/chat/", "data/tokenizers/", "io/", "planner/timeline/", "trainer/", "apps/", "examples/", "tools/", "benchmarks/", "tests/"],
}
SYSTEM = re.compile(r"[a-z_0-9]+$|(sys/)?[a-z]+\.h$")  # <vector>, <unistd.h>, <sys/stat.h>
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def starts(name, prefixes):
    return any(name.startswith(p) for p in prefixes)


def folder_rule(path):
    return max((p for p in PROJECT_RULES if path.startswith(p)), key=len, default="")


def target(path, included):
    """Returns the path in the tree that an #include "..." of a file names. Headers include each other by the way from one to the
    other, which is the same where they are installed and needs no -I; source files write the path from the root."""
    if path.endswith(".h") and included not in GENERATED:
        return os.path.normpath(os.path.join(os.path.dirname(path), included))
    return included


def well_written(path, included):
    to = target(path, included)
    if path.endswith(".h") and to not in GENERATED:
        return included == os.path.relpath(to, os.path.dirname(path) or ".")
    return included == os.path.normpath(to)


def allowed(root, path, bracket, included):
    if bracket == '"':
        if not well_written(path, included):
            return False
        included = target(path, included)
        if not ((root / included).is_file() or included in GENERATED):
            return False
        own = folder_rule(path)
        return folder_rule(included) == own or starts(included, PROJECT_RULES[own])
    for library, users in LIBRARY_RULES.items():
        if included.startswith(library):
            return starts(path, users)
    return SYSTEM.match(included) is not None


def unit(path):
    """A header and its source file are one unit."""
    return path.rsplit(".", 1)[0]


def cycles(includes):
    """Returns sets of units that include each other, one line each, by Tarjan's algorithm."""
    number, low, stack, found = {}, {}, [], []

    def visit(u):
        number[u] = low[u] = len(number)
        stack.append(u)
        for v in sorted(includes.get(u, ())):
            if v not in number:
                visit(v)
            if v in stack:
                low[u] = min(low[u], low[v])
        if low[u] == number[u]:
            circle = stack[stack.index(u):]
            del stack[stack.index(u):]
            if len(circle) > 1:
                found.append("these include each other: " + ", ".join(sorted(circle)))

    for u in sorted(includes):
        if u not in number:
            visit(u)
    return found


TYPE = re.compile(r"^(?:class|struct)(?: \[\[\w+\]\])? (\w+)[^;]*$", re.M)
MEMBER = re.compile(r"^(?!using |template|static |extern |#|//)(?=[A-Za-z~])[\w:<>,&*\s\[\]~]*?\b(\w+)::(~?\w+|operator[^(]+)\(", re.M)


def strayed_members(texts):
    """Returns members that are not defined in the source file that is named like their type's header."""
    home = {}
    for path, text in texts.items():
        if path.startswith(LIBRARY) and path.endswith(".h"):
            for name in TYPE.findall(text):
                home.setdefault(name, set()).add(unit(path))
    found = []
    for path, text in texts.items():
        if not path.startswith(LIBRARY) or not path.endswith(".cpp"):
            continue
        for name, member in MEMBER.findall(text):
            own = name in home and f"class {name} " not in text and f"struct {name} " not in text
            if own and unit(path) not in home[name] and f"{name}::{member}" not in ELSEWHERE:
                found.append(f"{path}: {name}::{member} belongs to {' or '.join(sorted(home[name]))}.cpp")
    return found


def violations(root):
    """Returns (files read, a line for each violation)."""
    found, includes, texts = [], {}, {}
    files = [f for d in FOLDERS for f in sorted((root / d).rglob("*"))] + [root / "rewind.h"]
    found += [f"{f.relative_to(root)} is a link: compilers and git blame want files" for f in files if f.is_symlink()]
    files = [f for f in files if f.suffix in (".h", ".cpp") and f.is_file()]
    for file in files:
        path = file.relative_to(root).as_posix()
        if path.startswith("tests/install/"):
            continue  # another project: it sees the installed headers only
        texts[path] = file.read_text()
        for number, line in enumerate(texts[path].splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            if not allowed(root, path, *match.groups()):
                found.append(f"{path}:{number}: {line.strip()}")
            elif match[1] == '"' and path.startswith(LIBRARY):
                to = unit(target(path, match[2]))
                if to != unit(path):
                    includes.setdefault(unit(path), set()).add(to)
    return len(files), found + crowded(files, root) + cycles(includes) + strayed_members(texts)


def crowded(files, root):
    """Returns folders of the library with more files side by side than one knows by heart."""
    count = {}
    for file in files:
        folder = file.parent.relative_to(root).as_posix() + "/"
        if folder.startswith(LIBRARY):
            count[folder] = count.get(folder, 0) + 1
    return [f"{folder} has {n} files, which are more than {MOST_FILES}: make rooms" for folder, n in count.items()
            if n > MOST_FILES]


def self_test():
    """The check must find planted violations, and nothing else."""
    good = ["core/base/error.h", "core/tensor/tensor.h", "backends/vulkan/device/vk.h", "nn/module.h"]
    lines = {
        "core/autograd/tape.cpp": ['#include "core/tensor/tensor.h"', "#include <vector>", "#include <fmt/format.h>"],
        "backends/vulkan/device/device.cpp": ["#include <vulkan/vulkan.h>", '#include "core/base/error.h"'],
        "core/tensor/bad.cpp": ["#include <vulkan/vulkan.h>", '#include "backends/vulkan/device/vk.h"', '#include "core/autograd/tape.h"'],
        "core/base/bad.h": ['#include "core/base/error.h"', '#include "../base/error.h"', '#include "../tensor/tensor.h"'],
        "backends/reference/bad.cpp": ['#include "core/tensor/tensor.h"', '#include "backends/vulkan/device/vk.h"'],
        "optim/bad.cpp": ['#include "nn/module.h"', '#include "../core/base/error.h"'],
        "data/bad.cpp": ["#include <boost/any.hpp>", '  #  include "core/tensor/tensor.h"', '#include "error.h"'],
        "nn/a.h": ['#include "b.h"', '#include "../core/base/error.h"', "class Layer {", "};"],
        "nn/b.h": [],
        "nn/b.cpp": ['#include "nn/a.h"', "void Layer::run() {", "}"],
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in good:
            lines[path] = []
        for path, text in lines.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("\n".join(text))
        (root / "nn/linked.h").symlink_to("b.h")
        (root / "io").mkdir()
        for number in range(MOST_FILES + 1):
            (root / f"io/{number}.h").touch()
        found = violations(root)[1]
    expected = {f"{p}:{n}" for p in lines if "/bad." in p for n in range(1, len(lines[p]) + 1)}
    circle = "these include each other: nn/a, nn/b"
    strayed = "nn/b.cpp: Layer::run belongs to nn/a.cpp"
    link = "nn/linked.h is a link: compilers and git blame want files"
    crowd = f"io/ has {MOST_FILES + 1} files, which are more than {MOST_FILES}: make rooms"
    whole = {circle, strayed, link, crowd}
    missed = whole - set(found)
    missed |= {":".join(f.split(":")[:2]) for f in found if f not in whole} ^ expected
    if missed:
        sys.exit("the layer check is wrong about its planted includes: " + ", ".join(sorted(missed)))


self_test()
count, broken = violations(Path(sys.argv[1]))
if broken or not count:
    print("\n".join(broken))
    sys.exit(f"{len(broken)} breaks of the layers in {count} files")
print(f"{count} files respect the layers")
