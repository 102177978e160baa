"""Reads the heads of .comp files: the properties of a kernel, and the variants that follow from them (docs/kernels.md)."""
import itertools
import math
import os
import re
from dataclasses import dataclass, field

import prelude

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # shaders/, from which files are included
KEYS = {"buffers", "types", "params", "local", "grid", "optimize", "define", "requires",
        "prefers", "stands_for", "reference", "precise"}
FEATURES = {  # name in `requires`: GLSL extension
    "subgroup": "GL_KHR_shader_subgroup_basic",
    "vote": "GL_KHR_shader_subgroup_vote",
    "arithmetic": "GL_KHR_shader_subgroup_arithmetic",
    "ballot": "GL_KHR_shader_subgroup_ballot",
    "shuffle": "GL_KHR_shader_subgroup_shuffle",
    "float16": "GL_EXT_shader_explicit_arithmetic_types_float16",
    "texels": "",  # bindings that are only read are texel buffers, too: see prelude.py
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
    optimize: bool = True
    precise: bool = False  # no float operation is contracted with another
    defines: list = field(default_factory=lambda: [{}])
    requires: list = field(default_factory=list)
    prefers: list = field(default_factory=list)
    stands_for: str = ""  # the kernel in whose place it runs where a device lacks what that one needs
    reference: str = ""  # the reference backend's function; empty: the kernel's own name, none: it is a part of others


@dataclass
class Variant:
    name: str
    types: dict
    defines: dict
    packed: bool  # f16 in uint words instead of 16-bit storage
    address: bool
    requires: list  # device features, those of the storage and addressing aside
    local: tuple  # (0, 1, 1): subgroup; (0, N, 1): N subgroups; (0, 0, 1): subgroups

    def cooperates(self):
        return "cooperative" in self.requires

    def factors(self):
        """Returns bf16 or f16 if it has cooperative matrices."""
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
    """`64`, `8,8,1`, `2*TILE`, `subgroup`, `8 subgroups`, `subgroups`: as many as the device's tiles have."""
    if text == "subgroup":
        return ("0", "1", "1")
    if text == "subgroups":
        return ("0", "0", "1")
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
                with open(os.path.join(ROOT, "elementwise.def")) as f:
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
    m.optimize = keys.get("optimize", "yes") == "yes"
    m.precise = keys.get("precise", "no") == "yes"
    m.requires = keys.get("requires", "").replace(",", " ").split()
    m.prefers = keys.get("prefers", "").replace(",", " ").split()
    m.stands_for = keys.get("stands_for", "")
    m.reference = keys.get("reference", "")
    for b in m.buffers:
        if b.access not in ("read", "write", "read_write"):
            raise ManifestError(f"buffer {b.name}: access must be read, write or read_write")
        if any(b.type not in prelude.DTYPES and b.type not in types for types in m.types):
            raise ManifestError(f"buffer {b.name}: '{b.type}' is neither a dtype nor in `types`")
    if m.grid not in GRIDS:
        raise ManifestError("grid is 1d, groups, 3d or words")
    if not set(m.requires + m.prefers) <= set(FEATURES):
        raise ManifestError(f"requires, prefers: known features are {' '.join(FEATURES)}")
    return m


def workgroup(m, defines):
    """Returns the threads along each axis, for these values of the manifest's defines."""
    try:
        return tuple(math.prod(int(defines.get(f, f)) for f in size.split("*")) for size in m.local)
    except ValueError:
        raise ManifestError(f"local: numbers, defines and their products are known, not {m.local}") from None


def expand(name, m):
    """Returns all variants of a kernel. Addressing doubles their number, and so does `prefers`: the backend takes the last
    variant that a device can run. f16 has a packed form for devices without 16-bit storage. There are hardly any such devices,
    so it has no variants for speed, and variants for more than the device's descriptor range only where nothing else would do."""
    variants = []
    preferred = {f"HAS_{feature.upper()}": 1 for feature in m.prefers}
    for defines, types in itertools.product(m.defines, m.types):
        local = workgroup(m, defines)
        full = ".".join([m.stands_for or name] + [f"{k}{v}" for k, v in defines.items()])
        has_half = any(types.get(b.type, b.type) == "f16" for b in m.buffers)

        def add(packed, address, more=()):
            macros = defines | preferred if more else defines
            variants.append(Variant(full, types, macros, packed, address, m.requires + list(more), local))

        for address in (False, True):
            add(False, address)
            if m.prefers:
                add(False, address, m.prefers)
        # Cooperative matrices are for devices that have 16-bit storage.
        if has_half and "cooperative" not in m.requires:
            add(True, False)
            if m.prefers:
                add(True, False, m.prefers)
    return variants


def includes(path, found):
    """Returns the files that `path` includes, at any depth."""
    with open(path) as f:
        for name in re.findall(r'^\s*#include "(.*)"', f.read(), re.M):
            file = os.path.join(ROOT, name)
            if file not in found and os.path.exists(file):
                found.append(file)
                includes(file, found)
    return found


def params_file(struct):
    """Returns the file of params/ that defines `struct`."""
    for name in sorted(os.listdir(os.path.join(ROOT, "params"))):
        with open(os.path.join(ROOT, "params", name)) as f:
            if f"struct {struct} {{" in f.read():
                return os.path.join("params", name)
    raise ManifestError(f"params: no file of shaders/params has `struct {struct} {{`")
