#!/usr/bin/env python3
"""Compiles one .comp file, in all its variants, into one C++ file (see docs/kernels.md).

    compile.py module shaders/fill.comp out.cpp out.d    one kernel
    compile.py names                                     the names of the .comp files beside this one
    compile.py list out.cpp out.h shaders/fill.comp ...  the list of all kernels, and for the cpu backend
                                                         their dtypes, parameters and functions
"""
import itertools
import math
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import cooperative
import module_cache
import prelude
import spirv

TOOLS = ["glslangValidator", "spirv-opt", "spirv-val"]

KEYS = {"buffers", "types", "params", "local", "grid", "address", "optimize", "define", "requires",
        "prefers", "texels", "stands_for", "cpu"}
FEATURES = {  # name in `requires`: GLSL extension
    "subgroup": "GL_KHR_shader_subgroup_basic",
    "vote": "GL_KHR_shader_subgroup_vote",
    "arithmetic": "GL_KHR_shader_subgroup_arithmetic",
    "ballot": "GL_KHR_shader_subgroup_ballot",
    "shuffle": "GL_KHR_shader_subgroup_shuffle",
    "int64": "GL_EXT_shader_explicit_arithmetic_types_int64",
    "float16": "GL_EXT_shader_explicit_arithmetic_types_float16",
    "texels": "",  # bindings that are read are texel buffers, too: see prelude.py
    "cooperative": "",  # see cooperative.py
}


GRIDS = {"1d": "threads", "groups": "groups", "3d": "cube", "words": "words"}


class ManifestError(Exception):
    pass


@dataclass
class Buffer:
    name: str
    type: str  # a dtype, or a letter of `types`
    access: str


@dataclass
class Manifest:
    buffers: list
    types: list = field(default_factory=lambda: [{}])  # one {letter: dtype} per combination
    params: str = ""
    local: tuple = ("64", "1", "1")  # numbers, or products of them and of defines; 0: subgroup, 0, N: N subgroups
    grid: str = "1d"
    address: str = "no"
    optimize: bool = True
    defines: list = field(default_factory=lambda: [{}])
    requires: list = field(default_factory=list)
    prefers: list = field(default_factory=list)
    # Also a variant with texels, of what it prefers and with descriptors. yes: for bindings that are only
    # read, all: for those that are read and written, too.
    texels: str = "no"
    stands_for: str = ""  # the kernel in whose place it runs where a device lacks what that one needs
    cpu: str = ""  # the cpu backend's function; empty: the kernel's own name, none: it is a part of others


@dataclass
class Variant:
    name: str
    types: dict
    defines: dict
    packed: bool  # f16 in uint words instead of 16-bit storage
    address: bool
    requires: list  # device features, those of the storage and addressing aside
    local: tuple  # (0, 1, 1): subgroup; (0, N, 1): N subgroups

    def cooperates(self):
        return "cooperative" in self.requires

    def factors(self):
        """bf16 or f16, where it has cooperative matrices."""
        return self.defines.get("FACTORS", "f16")


def parse_types(text):
    """`T = f32 f16; U = f32 i32` or `T,U = f32,f32 f16,f32` -> list of {letter: dtype}."""
    groups = []
    for group in text.split(";"):
        letters, _, choices = group.partition("=")
        letters = [s.strip() for s in letters.split(",")]
        rows = [choice.split(",") for choice in choices.split()]
        for row in rows:
            if len(row) != len(letters) or not set(row) <= set(prelude.DTYPES):
                raise ManifestError(f"types: '{group.strip()}' is not LETTERS = DTYPES ...")
        groups.append([dict(zip(letters, row)) for row in rows])
    return [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*groups)]


def parse_defines(text):
    """`A=1,2 B=3` -> [{A: 1, B: 3}, {A: 2, B: 3}]; `A,B=1,2;3,4` -> [{A: 1, B: 2}, {A: 3, B: 4}]."""
    axes = []
    for item in text.split():
        names, _, values = item.partition("=")
        names = names.split(",")
        axes.append([list(zip(names, value.split(","))) for value in values.split(";" if len(names) > 1 else ",")])
    return [dict(sum(combination, [])) for combination in itertools.product(*axes)]


def parse_local(text):
    """`64`, `8,8,1`, `2*TILE`, `subgroup`, `8 subgroups`."""
    if text == "subgroup":
        return ("0", "1", "1")
    if text.endswith(" subgroups"):
        return ("0", text.split()[0], "1")
    return tuple((text.split(",") + ["1", "1"])[:3])


CONSTANT = re.compile(r"^layout\(constant_id = (\d+)\) const (\w+) (\w+) = (\w+);(?:\s*//! ([\w ]+))?", re.M)
ROWS = {"UNARY": r"^UNARY(?:_AB)?\(\d", "BINARY": r"^BINARY(?:_FLOAT)?\(\d", "COMPARE": r"^COMPARE\(\d"}


def parse_constants(path):
    """The specialization constants that a call may set, as declared in `path` and what it includes:
    [(name, default, values, open)]. A bool has both values, others say theirs: numbers, or the rows of
    elementwise.def; `others` after some numbers: these are examples, and the constant is open."""
    found = {}
    for file in [path] + includes(path, []):
        with open(file) as f:
            source = f.read()
        for number, type_name, name, default, values in CONSTANT.findall(source):
            if values in ROWS:
                with open(os.path.join(os.path.dirname(path), "elementwise.def")) as f:
                    choices = list(range(len(re.findall(ROWS[values], f.read(), re.M))))
            elif type_name == "bool":
                choices = [0, 1]
            else:
                choices = [int(v) for v in values.removesuffix("others").split()]
            if not choices:
                raise ManifestError(f"constant {name}: its values must stand behind it, as `//! 0 1` does")
            default = {"false": 0, "true": 1}.get(default, default)
            if int(number) in found or int(default) not in choices:
                raise ManifestError(f"constant {name}: its number must be its own, and its default a value")
            found[int(number)] = (name, int(default), choices, values.endswith("others"))
    if sorted(found) != list(range(len(found))):
        raise ManifestError("specialization constants must be numbered from 0 without gaps")
    return [found[number] for number in sorted(found)]


def parse_manifest(source):
    keys = {}
    for line in re.findall(r"^//!(.*)$", source, re.M):
        key, colon, value = line.partition(":")
        key = key.strip()
        if not colon or key not in KEYS:
            raise ManifestError(f"unknown key '{key}'; known: {' '.join(sorted(KEYS))}")
        keys[key] = (keys[key] + " " if key in keys else "") + value.strip()
    for key in ("buffers", "params"):
        if key not in keys:
            raise ManifestError(f"no `//! {key}:` line")

    m = Manifest(buffers=[Buffer(*item.split(":")) for item in keys["buffers"].split()])
    m.params = keys["params"]
    if "types" in keys:
        m.types = parse_types(keys["types"])
    if "define" in keys:
        m.defines = parse_defines(keys["define"])
    if "local" in keys:
        m.local = parse_local(keys["local"])
    m.grid = keys.get("grid", "1d")
    m.address = keys.get("address", "no")
    m.optimize = keys.get("optimize", "yes") == "yes"
    m.requires = keys.get("requires", "").replace(",", " ").split()
    m.prefers = keys.get("prefers", "").replace(",", " ").split()
    m.texels = keys.get("texels", "no")
    m.stands_for = keys.get("stands_for", "")
    m.cpu = keys.get("cpu", "")
    for b in m.buffers:
        if b.access not in ("read", "write", "read_write"):
            raise ManifestError(f"buffer {b.name}: access must be read, write or read_write")
        if any(b.type not in prelude.DTYPES and b.type not in types for types in m.types):
            raise ManifestError(f"buffer {b.name}: '{b.type}' is neither a dtype nor in `types`")
    if m.grid not in GRIDS or m.address not in ("no", "only") or m.texels not in ("no", "yes", "all"):
        raise ManifestError("grid is 1d, groups, 3d or words; address is no or only; texels is no, yes or all")
    if not set(m.requires + m.prefers) <= set(FEATURES):
        raise ManifestError(f"requires, prefers: known features are {' '.join(FEATURES)}")
    return m


def workgroup(m, defines):
    """Threads along each axis, for these values of the manifest's defines."""
    try:
        return tuple(math.prod(int(defines.get(f, f)) for f in size.split("*")) for size in m.local)
    except ValueError:
        raise ManifestError(f"local: numbers, defines and their products are known, not {m.local}") from None


def expand(name, m):
    """All variants of a kernel. f16 doubles (16-bit storage, packed), addressing doubles, and so does
    `prefers`: of what a device can run, the backend takes the last."""
    variants = []
    preferred = {f"HAS_{feature.upper()}": 1 for feature in m.prefers}
    for defines, types in itertools.product(m.defines, m.types):
        local = workgroup(m, defines)
        full = ".".join([m.stands_for or name] + [f"{k}{v}" for k, v in defines.items()])
        has_half = any(types.get(b.type, b.type) == "f16" for b in m.buffers)
        # Cooperative matrices are for devices that have 16-bit storage.
        for packed in (False, True) if has_half and "cooperative" not in m.requires else (False,):
            for address in (True,) if m.address == "only" else (False, True):
                variants.append(Variant(full, types, defines, packed, address, m.requires, local))
                if m.prefers:
                    variants.append(Variant(full, types, defines | preferred, packed, address,
                                            m.requires + m.prefers, local))
                if m.texels != "no" and not address:
                    variants.append(Variant(full, types, defines | preferred, packed, address,
                                            m.requires + m.prefers + ["texels"], local))
    return variants


def tool(command, source=None):
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


def spirv_val(binary):
    tool(["spirv-val", "--target-env", "vulkan1.2", binary])


def finish_cooperative(binary, brain):
    """Checks the module in the form that spirv-val knows, and leaves it in the KHR form. No spirv-opt:
    Debian 12's refuses such modules."""
    module = spirv.Module.read(binary)
    if not cooperative.is_native(brain):
        spirv.write(binary, cooperative.checkable(module.words))
        spirv_val(binary)
        spirv.write(binary, cooperative.translate(module.words, brain))
    if cooperative.validates(brain):
        spirv_val(binary)


def compile_variant(path, source, m, v, stem):
    """GLSL of the variant -> SPIR-V file -> (words, push bytes)."""
    glsl, binary = stem + ".glsl", stem + ".spv"
    brain = v.factors() == "bf16"
    extensions, macros = cooperative.prelude(brain) if v.cooperates() else ([], {})
    extensions += [FEATURES[r] for r in v.requires if FEATURES[r]]
    with open(glsl, "w") as f:
        f.write(prelude.write(m, v, extensions, v.defines | macros, params_file(os.path.dirname(path), m.params)))
        f.write(f'#line 1 "{os.path.basename(path)}"\n{source}')
    try:
        tool(["glslangValidator", "-V", "--target-env", "vulkan1.2", "-S", "comp", "--quiet",
              "-I" + os.path.dirname(path), "-o", binary, glsl])
        module = spirv.Module.read(binary)
        if v.cooperates():
            finish_cooperative(binary, brain)
        else:
            if m.optimize:
                tool(["spirv-opt", "-O", "--target-env=vulkan1.2", binary, "-o", binary])
            spirv_val(binary)
    except RuntimeError as e:
        raise RuntimeError(f"{path}: variant {os.path.basename(stem)}\n{e}") from None
    buffers = [b for b in module.bindings() if b < prelude.TEXELS]
    if max(buffers, default=0) >= (1 if v.address else len(m.buffers)):
        raise RuntimeError(f"{path}: a binding that the manifest does not have")
    return spirv.Module.read(binary).words, module.push_constant_bytes()


def features(m, v):
    names = list(v.requires)
    if v.address:
        names.append("address")
    if not v.packed and "f16" in [v.types.get(b.type, b.type) for b in m.buffers]:
        names.append("storage16")
    if v.cooperates():
        names.append("float16")
        names += ["cooperative_bf16"] if v.factors() == "bf16" else []
    return " | ".join(f"feature::{n}" for n in names) or "0"


def cpp_module(name, m, variants, constants, results):
    out = ['#include "rewind/backends/vulkan/shader_table.h"', "", "namespace rw::vulkan {", "namespace {"]
    for i, (_, _, values, _) in enumerate(constants):
        out.append(f"constexpr uint32_t values{i}[] = {{{', '.join(map(str, values))}}};")
    if constants:
        out.append("constexpr ShaderConstant constants[] = {" + ", ".join(
            f'{{"{n}", {default}, values{i}, {str(is_open).lower()}}}'
            for i, (n, default, _, is_open) in enumerate(constants)) + "};")
    rows = []
    for i, (v, (words, push_bytes)) in enumerate(zip(variants, results)):
        hexes = [f"0x{w:x}" for w in words]
        lines = [",".join(hexes[k:k + 12]) for k in range(0, len(hexes), 12)]
        out.append(f"constexpr uint32_t words{i}[] = {{\n" + ",\n".join(lines) + "};")
        bindings = ", ".join(f"{{DType::{v.types.get(b.type, b.type)}, Access::{b.access}}}"
                             for b in m.buffers)
        out.append(f"constexpr ShaderBinding bindings{i}[] = {{{bindings}}};")
        local = "{%d, %d, %d}" % v.local
        rows.append(f'    {{"{v.name}", bindings{i}, {str(v.packed).lower()}, '
                    f'{str(v.address).lower()}, {str(bool(m.stands_for)).lower()}, Grid::{GRIDS[m.grid]}, {features(m, v)}, '
                    f'{push_bytes}, {local}, {"constants" if constants else "{}"}, words{i}}},')
    out += ["constexpr Shader shaders[] = {"] + rows + ["};", "}  // namespace"]
    out += [f"extern const std::span<const Shader> shaders_{name};",
            f"const std::span<const Shader> shaders_{name} = shaders;", "}  // namespace rw::vulkan"]
    return "\n".join(out) + "\n"


def includes(path, found):
    """Files that `path` includes, at any depth."""
    with open(path) as f:
        for name in re.findall(r'^\s*#include "(.*)"', f.read(), re.M):
            file = os.path.join(os.path.dirname(path), name)
            if file not in found and os.path.exists(file):
                found.append(file)
                includes(file, found)
    return found


def params_file(folder, struct):
    """The file of `folder`/params that defines `struct`."""
    for name in sorted(os.listdir(os.path.join(folder, "params"))):
        with open(os.path.join(folder, "params", name)) as f:
            if f"struct {struct} {{" in f.read():
                return os.path.join("params", name)
    raise ManifestError(f"params: no file of shaders/params has `struct {struct} {{`")


def run_module(path, out, depfile):
    folder = os.path.dirname(path)
    with open(path) as f:
        params = params_file(folder, parse_manifest(f.read()).params)
    shared = [os.path.join(folder, name) for name in (os.path.join("params", "common.h"), params)]
    files = [path] + includes(path, shared)
    with open(depfile, "w") as f:
        f.write(f"{out}: {' '.join(files)}\n")
    cache = module_cache.Entry(files, TOOLS)
    if not cache.copy_to(out):
        compile_module(path, out)
        cache.keep(out)


def compile_module(path, out):
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path) as f:
        source = f.read()
    m = parse_manifest(source)
    variants = expand(name, m)
    constants = parse_constants(path)
    scratch = out + ".d"
    os.makedirs(scratch, exist_ok=True)

    def one(v):
        tag = "-".join([v.name] + [f"{k}_{t}" for k, t in v.types.items()] + ["packed"] * v.packed
                       + ["address"] * v.address + v.requires[len(m.requires):])
        return compile_variant(path, source, m, v, os.path.join(scratch, tag))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(one, variants))
    with open(out, "w") as f:
        f.write(cpp_module(name, m, variants, constants, results))


LETTERS = {"f32": "f", "f16": "h", "i32": "i", "u8": "u"}


def run_table(out, kernels):
    """What the cpu backend has to know of each kernel: accepted dtypes with one letter per binding."""
    functions, rows = set(), []
    for name, m in kernels.items():
        if m.cpu == "none":
            continue
        functions.add(m.cpu or name)
        dtypes = dict.fromkeys("".join(LETTERS[types.get(b.type, b.type)] for b in m.buffers)
                               for types in m.types)
        rows.append(f'    {{"{name}", "{" ".join(dtypes)}", sizeof(kernels::{m.params}), {m.cpu or name}}},')
    with open(out, "w") as f:
        f.write("// Written by shaders/compile.py from the heads of the .comp files.\n#pragma once\n\n"
                "namespace rw::cpu {\n\n"
                + "".join(f"void {name}(const Call& call);\n" for name in sorted(functions))
                + "\ninline constexpr Kernel shader_kernels[] = {\n" + "\n".join(rows)
                + "\n};\n\n}  // namespace rw::cpu\n")


def run_list(out, table, paths):
    kernels = {}
    for path in paths:
        with open(path) as f:
            kernels[os.path.splitext(os.path.basename(path))[0]] = parse_manifest(f.read())
    run_table(table, kernels)
    names = list(kernels)
    text = '#include "rewind/backends/vulkan/shader_table.h"\n\nnamespace rw::vulkan {\n'
    for n in names:
        text += f"extern const std::span<const Shader> shaders_{n};\n"
    text += "std::vector<std::span<const Shader>> all_shaders() {\n  return {"
    text += ", ".join(f"shaders_{n}" for n in names) + "};\n}\n}  // namespace rw::vulkan\n"
    with open(out, "w") as f:
        f.write(text)


def main():
    try:
        if sys.argv[1] == "module":
            run_module(*sys.argv[2:5])
        elif sys.argv[1] == "names":
            here = os.path.dirname(os.path.abspath(__file__))
            print(*sorted(f[:-len(".comp")] for f in os.listdir(here) if f.endswith(".comp")))
        else:
            run_list(sys.argv[2], sys.argv[3], sys.argv[4:])
    except (ManifestError, RuntimeError) as e:
        sys.exit(f"{sys.argv[2]}: {e}")


if __name__ == "__main__":
    main()
