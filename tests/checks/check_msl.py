#!/usr/bin/env python3
"""Turns every shader module of a build into Metal's language and looks for constructs that Metal refuses, which needs no
Apple machine. Usage: check_msl.py BUILD/shaders"""

import array
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

VERSION = "20400"  # Metal 2.4, with 64-bit addresses in buffers
MOST_THREADGROUP_BYTES = 32768
BYTES = {"half": 2, "short": 2, "ushort": 2, "float": 4, "int": 4, "uint": 4, "float4": 16, "int4": 16,
         "uint4": 16}
# Debian 12's spirv-cross knows no atomics on buffers by address, newer ones do (1.4.357 converts all).
NOT_KNOWN = "No backing variable for atomic operation"
# None of its versions knows the instructions of cooperative matrices.
NO_MATRICES = "Currently no block to insert opcode"

# Its array has the size of a specialization constant.
PLANTED = """#version 460
layout(local_size_x_id = 100) in;
layout(binding = 0) buffer Y { float y[]; };
shared float x[gl_WorkGroupSize.x];
void main() {
  x[gl_LocalInvocationID.x] = 1.0;
  barrier();
  y[gl_LocalInvocationID.x] = x[0];
}
"""


def bytes_of_types(text):
    """Returns {type: most bytes}, with the structs whose members' types are known; each member may be as large as the largest."""
    sizes = dict(BYTES)
    for name, body in re.findall(r"^struct (\w+)\s*\{(.*?)\};", text, re.M | re.S):
        members = re.findall(r"(\w+) \w+;", body)
        if not members or not all(m in sizes for m in members):
            continue
        sizes[name] = len(members) * max(sizes[m] for m in members)
    return sizes


def faults(text):
    """Returns what Metal refuses in a text that spirv-cross wrote."""
    found, threadgroup, known = [], 0, bytes_of_types(text)
    for kind, name, size in re.findall(r"^\s*threadgroup (\w+) (\w+)\[(.*?)\];", text, re.M):
        sizes = size.split("][")  # of one dimension or several
        if not all(s.isdigit() for s in sizes):
            found.append(f"threadgroup array {name}[{size}]: its size is no literal")
        elif kind not in known:
            found.append(f"threadgroup array {name} of {kind}: its bytes are not known to this check")
        else:
            threadgroup += known[kind] * math.prod(map(int, sizes))
    if threadgroup > MOST_THREADGROUP_BYTES:
        found.append(f"{threadgroup} bytes of threadgroup memory, at most {MOST_THREADGROUP_BYTES} are possible")
    if re.search(r"\bdouble[234]?\b", text):
        found.append("double")
    if re.search(r"\batomic_u?long\b", text):
        found.append("atomics of 64 bits")
    return found


ROW = re.compile(r'^    \{"([\w.]+)", bindings\d+, (true|false), (true|false), .*\{shader_words \+ (\d+), (\d+)\}\},$', re.M)


def modules_of(folder):
    """Reads the modules that shaders/compiler/compile.py wrote: [(name, SPIR-V words)]."""
    with open(os.path.join(folder, "shader_table.cpp"), encoding="utf-8") as f:
        rows = ROW.findall(f.read())
    words = array.array("I")
    with open(os.path.join(folder, "shader_words.bin"), "rb") as f:
        words.frombytes(f.read())
    return [(f"{number}-{name}{'-packed' * (packed == 'true')}{'-address' * (address == 'true')}",
             words[int(start):int(start) + int(count)])
            for number, (name, packed, address, start, count) in enumerate(rows)]


def convert(path):
    """Returns (faults of a module, whether the tool could convert it)."""
    done = subprocess.run(["spirv-cross", "--msl", "--msl-version", VERSION, path],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return faults(done.stdout), True
    message = done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"exit status {done.returncode}"
    name = os.path.basename(path)
    known = ("-address" in name and NOT_KNOWN in message) or ("_cooperative." in name and NO_MATRICES in message)
    return ([], False) if known else ([message], False)


def check_planted():
    """Checks that planted faults are found."""
    with tempfile.TemporaryDirectory() as folder:
        source, module = os.path.join(folder, "planted.comp"), os.path.join(folder, "planted.spv")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PLANTED)
        subprocess.run([os.path.join(sys.argv[1], "shader_compiler")], input=f"plain {source} {module}\n", text=True,
                       check=True)
        found, _ = convert(module)
        assert len(found) == 1 and "no literal" in found[0], found
    assert faults("  threadgroup float x[8193];") and not faults("  threadgroup float x[8192];")
    assert faults("  threadgroup float x[2][4097];") and not faults("  threadgroup float x[2][4096];")
    assert faults("  threadgroup float x[2][gl_WorkGroupSize.x];")
    assert faults("double y = 1;") and faults("device atomic_ulong* p;")


def main():
    if not shutil.which("spirv-cross"):
        print("skipped: no spirv-cross (Debian: apt install spirv-cross)")
        return
    check_planted()
    modules = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, words in modules_of(sys.argv[1]):
            modules.append(os.path.join(folder, name + ".spv"))
            with open(modules[-1], "wb") as module:
                words.tofile(module)
        assert modules, f"there must be modules in {sys.argv[1]}"
        results = list(pool.map(convert, modules))
    bad = 0
    for path, (found, _) in zip(modules, results):
        for fault in found:
            bad += 1
            print(f"{os.path.basename(path)}: {fault}")
    unknown = sum(not converted and not found for found, converted in results)
    print(f"{len(modules)} modules, {bad} refused by Metal, {unknown} with atomics by address or matrices, "
          "which this spirv-cross does not convert")
    if bad:
        sys.exit(1)


main()
