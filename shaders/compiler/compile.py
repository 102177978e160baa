"""Compiles the .comp files of the rooms of shaders/, in all their variants (see docs/kernels.md).

    compile.py modules COMPILER table.cpp words.bin out.d    SPIR-V of all kernels and the table that finds it;
                                                             COMPILER is the program of compiler.cpp
    compile.py kernels out.h out.d                           for the reference backend: dtypes, parameters and functions
    compile.py show COMPILER FILE FOLDER                     the GLSL and SPIR-V of one file's variants, into FOLDER
"""
import os
import sys

sys.dont_write_bytecode = True  # a new file beside the shaders means that kernels came or went

import array  # noqa: E402
import glob  # noqa: E402
import hashlib  # noqa: E402
import re  # noqa: E402
import shutil  # noqa: E402
import tempfile  # noqa: E402

import cooperative  # noqa: E402
import manifest  # noqa: E402
import prelude  # noqa: E402
import spirv  # noqa: E402
from manifest import FEATURES, GRIDS, ROOT  # noqa: E402
from toolchain import Cache, CompileError, Compiler  # noqa: E402

INCLUDE = re.compile(r'^[ \t]*#include "(.*)"$')


class Kernel:
    """A .comp file."""

    def __init__(self, path):
        self.name, self.path = os.path.splitext(os.path.basename(path))[0], path
        with open(path) as f:
            self.source = f.read()
        try:
            self.manifest = manifest.parse_manifest(self.source)
            self.variants = manifest.expand(self.name, self.manifest)
            self.constants = manifest.parse_constants(path)
            self.params = manifest.params_file(self.manifest.params)
        except manifest.ManifestError as e:
            raise manifest.ManifestError(f"{path}: {e}") from None


def kernels():
    return [Kernel(path) for path in sorted(glob.glob(os.path.join(ROOT, "*", "*.comp")), key=os.path.basename)]


class Inliner:
    """Puts included files in their places, so that a variant is one text, which is the key of its module in the cache."""

    def __init__(self):
        self.lines = {}

    def file(self, name):
        if name not in self.lines:
            with open(os.path.join(ROOT, name)) as f:
                self.lines[name] = f.read().split("\n")
        return self.lines[name]

    def inline(self, name, lines):
        out = []
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if found:
                out.append(f'#line 1 "{found[1]}"')
                out += self.inline(found[1], self.file(found[1]))
                out.append(f'#line {number + 1} "{name}"')
            else:
                out.append(line)
        return out


def glsl(kernel, v, inliner, compiler):
    brain = v.factors() == "bf16"
    extensions, macros = cooperative.prelude(compiler.is_native(brain), brain) if v.cooperates() else ([], {})
    extensions += [FEATURES[r] for r in v.requires if FEATURES[r]]
    head = prelude.write(kernel.manifest, v, extensions, v.defines | macros, kernel.params)
    lines = inliner.inline("prelude", head.split("\n")[:-1])
    lines += [f'#line 1 "{kernel.name}.comp"'] + inliner.inline(kernel.name + ".comp", kernel.source.split("\n"))
    return "\n".join(lines)


def mode(kernel, v, compiler):
    """Returns how the module is compiled. There is no optimizer for matrices: Debian 12's refuses them, and the validator may
    not know them."""
    precise = "-precise" if kernel.manifest.precise else ""
    if not v.cooperates():
        return ("optimize" if kernel.manifest.optimize else "keep") + precise
    brain = v.factors() == "bf16"
    return ("keep" if compiler.is_native(brain) and compiler.validates(brain) else "plain") + precise


def to_khr(path, brain, compiler):
    """Checks a module in the form that the validator knows, and returns it in the KHR form."""
    words = spirv.Module.read(path).words
    spirv.write(path + ".nv", cooperative.checkable(words))
    compiler.run([("check", path + ".nv", "-")])
    os.remove(path + ".nv")
    spirv.write(path, cooperative.translate(words, brain))


class Build:
    """All variants of some kernels, which are compiled unless the cache has them."""

    def __init__(self, all_kernels, compiler, cache):
        self.variants = []  # (kernel, variant, GLSL, file of the module)
        self.compiler, self.cache = compiler, cache
        inliner = Inliner()
        for kernel in all_kernels:
            for v in kernel.variants:
                text = glsl(kernel, v, inliner, compiler)
                self.variants.append((kernel, v, text, cache.path(mode(kernel, v, compiler), text)))

    def compile(self):
        missing = {}
        for kernel, v, text, path in self.variants:
            if path not in missing and not self.cache.has(path):
                missing[path] = kernel, v, text
        if missing:
            with tempfile.TemporaryDirectory(dir=self.cache.folder) as scratch:
                self.compile_into(scratch, missing)
            self.cache.clean()

    def compile_into(self, scratch, missing):
        """Compiles into a folder; modules are renamed to their places when they are whole."""
        jobs, names = [], {}
        for number, (path, (kernel, v, text)) in enumerate(missing.items()):
            names[path] = os.path.join(scratch, f"{tag(v)}-{number}")
            with open(names[path] + ".comp", "w") as f:
                f.write(text)
            jobs.append((mode(kernel, v, self.compiler), names[path] + ".comp", names[path] + ".spv"))
        self.compiler.run(jobs)
        for path, (_, v, _) in missing.items():
            brain = v.factors() == "bf16"
            if v.cooperates() and not self.compiler.is_native(brain):
                to_khr(names[path] + ".spv", brain, self.compiler)
            os.replace(names[path] + ".spv", path)


def tag(v):
    return "-".join([v.name] + [f"{k}_{t}" for k, t in v.types.items()] + ["packed"] * v.packed
                    + ["address"] * v.address + (["texels"] if "texels" in v.requires else []))


def features(m, v):
    names = list(v.requires)
    if v.address:
        names.append("address")
    if "f16" in [v.types.get(b.type, b.type) for b in m.buffers]:
        names += ["halves"] if v.packed else ["halves", "storage16"]
    if v.cooperates():
        names.append("float16")
        names += ["cooperative_bf16"] if v.factors() == "bf16" else []
    return " | ".join(f"feature::{n}" for n in names) or "0"


class Words:
    """The words of all modules, one after the other; equal ones are stored once."""

    def __init__(self):
        self.all, self.places = array.array("I"), {}

    def add(self, words):
        key = words.tobytes()
        if key not in self.places:
            self.places[key] = len(self.all)
            self.all.extend(words)
        return f"{{shader_words + {self.places[key]}, {len(words)}}}"


class Table:
    """The C++ table of all modules; equal arrays of bindings are stored once."""

    def __init__(self):
        self.words, self.bindings, self.constants, self.rows = Words(), {}, {}, []

    def row(self, kernel, v, module):
        m = kernel.manifest
        buffers = [b for b in module.bindings() if b < prelude.TEXELS]
        if max(buffers, default=0) >= (1 if v.address else len(m.buffers)):
            raise CompileError(f"{kernel.path}: variant {tag(v)} has a binding that the manifest does not have")
        bindings = ", ".join(f"{{DType::{v.types.get(b.type, b.type)}, Access::{b.access}}}" for b in m.buffers)
        number = self.bindings.setdefault(bindings, len(self.bindings))
        flags = ", ".join(str(flag).lower() for flag in (v.packed, v.address, bool(m.stands_for)))
        constants = f"constants_{kernel.name}" if kernel.constants else "{}"
        if kernel.constants:
            self.constants[kernel.name] = kernel.constants
        self.rows.append(f'    {{"{v.name}", bindings{number}, {flags}, Grid::{GRIDS[m.grid]}, {features(m, v)}, '
                         f'{module.push_constant_bytes()}, {{{"%s, %s, %s" % v.local}}}, {constants}, '
                         f'{self.words.add(module.words)}}},')

    def cpp(self, words_file):
        out = ["// Written by shaders/compiler/compile.py.", '#include "backends/vulkan/device/build_id.h"',
               '#include "backends/vulkan/device/shader_table.h"', "",
               'asm(".pushsection .rodata\\n.balign 16\\n.global rewind_shader_words\\n.hidden rewind_shader_words\\n"',
               f'    "rewind_shader_words:\\n.incbin \\"{words_file}\\"\\n.popsection");',
               f'extern "C" const uint32_t rewind_shader_words[{len(self.words.all)}];', "",
               "namespace rw::vulkan {", "namespace {", "constexpr const uint32_t* shader_words = rewind_shader_words;"]
        for bindings, number in self.bindings.items():
            out.append(f"constexpr ShaderBinding bindings{number}[] = {{{bindings}}};")
        for name, constants in self.constants.items():
            for i, (_, _, values, _) in enumerate(constants):
                out.append(f"constexpr uint32_t values_{name}_{i}[] = {{{', '.join(map(str, values))}}};")
            out.append(f"constexpr ShaderConstant constants_{name}[] = {{" + ", ".join(
                f'{{"{n}", {default}, values_{name}_{i}, {str(is_open).lower()}}}'
                for i, (n, default, _, is_open) in enumerate(constants)) + "};")
        digest = hashlib.sha256("".join(self.rows).encode() + self.words.all.tobytes()).hexdigest()
        return "\n".join(out + ["constexpr Shader shaders[] = {"] + self.rows + ["};", "}  // namespace"] + [
            "std::span<const Shader> all_shaders() { return shaders; }",
            f"uint64_t build_id() {{ return 0x{digest[:16]}; }}", "}  // namespace rw::vulkan"]) + "\n"


def write_if_new(path, content):
    """Leaves an unchanged file alone, so that nothing that depends on it is built again."""
    try:
        with open(path, "rb") as f:
            if f.read() == content:
                return
    except OSError:
        pass
    with open(path, "wb") as f:
        f.write(content)


def write_depfile(path, out):
    """Writes that the outputs depend on all files of shaders/, and on its folders, since a kernel may come or go. Paths are
    relative, so that they stay right where a tree and its build are copied or moved together."""
    files = []
    for folder, folders, names in os.walk(ROOT):
        folders.sort()
        files += [folder] + [os.path.join(folder, name) for name in sorted(names)
                             if name.endswith((".comp", ".glsl", ".def", ".h", ".py"))]
    with open(path, "w") as f:
        f.write(f"{out}: {' '.join(os.path.relpath(file) for file in files)}\n")


def run_modules(program, table_file, words_file, depfile):
    compiler = Compiler(program)
    cache = Cache(compiler, os.path.join(os.path.dirname(os.path.abspath(words_file)), "modules"))
    build = Build(kernels(), compiler, cache)
    build.compile()
    table = Table()
    for kernel, v, _, path in build.variants:
        table.row(kernel, v, spirv.Module.read(path))
    write_if_new(words_file, table.words.all.tobytes())
    write_if_new(table_file, table.cpp(os.path.relpath(words_file)).encode())
    write_depfile(depfile, table_file)


def run_show(program, path, folder):
    compiler = Compiler(program)
    os.makedirs(folder, exist_ok=True)
    build = Build([Kernel(os.path.abspath(path))], compiler, Cache(compiler, os.path.join(folder, "modules")))
    build.compile()
    for _, v, text, module in build.variants:
        with open(os.path.join(folder, tag(v) + ".comp"), "w") as f:
            f.write(text)
        shutil.copyfile(module, os.path.join(folder, tag(v) + ".spv"))


LETTERS = {"f32": "f", "f16": "h", "i32": "i", "u8": "u"}


def run_kernels(out, depfile):
    """Writes what the reference backend must know of each kernel: accepted dtypes with one letter per binding."""
    functions, rows = set(), []
    for kernel in kernels():
        m, name = kernel.manifest, kernel.name
        if m.reference == "none":
            continue
        functions.add(m.reference or name)
        dtypes = dict.fromkeys("".join(LETTERS[types.get(b.type, b.type)] for b in m.buffers)
                               for types in m.types)
        rows.append(f'    {{"{name}", "{" ".join(dtypes)}", sizeof(kernels::{m.params}), {m.reference or name}}},')
    write_if_new(out, ("// Written by shaders/compiler/compile.py from the heads of the .comp files.\n#pragma once\n\n"
                       "namespace rw::reference {\n\n"
                       + "".join(f"void {name}(const Call& call);\n" for name in sorted(functions))
                       + "\ninline constexpr Kernel shader_kernels[] = {\n" + "\n".join(rows)
                       + "\n};\n\n}  // namespace rw::reference\n").encode())
    write_depfile(depfile, out)


COMMANDS = {"modules": (run_modules, 4), "kernels": (run_kernels, 2), "show": (run_show, 3)}


def main():
    command, count = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if command is None or len(sys.argv) != count + 2:
        sys.exit(__doc__)
    try:
        command(*sys.argv[2:])
    except (manifest.ManifestError, CompileError, cooperative.Refused) as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
