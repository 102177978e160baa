"""Tests the shader compiler: manifests, variants, reflection, error positions. Usage: test_shader_compiler.py COMPILER"""
import glob
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SHADERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shaders")
sys.path.insert(0, os.path.join(SHADERS, "compiler"))

import compile as build  # noqa: E402
import manifest  # noqa: E402
import prelude  # noqa: E402
import spirv  # noqa: E402
import toolchain  # noqa: E402

PROGRAM = sys.argv.pop(1)

FILL = """//! buffers: y:T:write
//! types: T = f32 f16
//! params: FillParams
"""


class Manifest(unittest.TestCase):
    def test_types_multiply_or_pair(self):
        self.assertEqual(len(manifest.parse_types("T = f32 f16; U = f32 i32 u8")), 6)
        self.assertEqual(manifest.parse_types("T,U = f32,f32 f16,f32"),
                         [{"T": "f32", "U": "f32"}, {"T": "f16", "U": "f32"}])

    def test_variants(self):
        m = manifest.parse_manifest(FILL + "//! define: A=1,2 B=3\n")
        variants = manifest.expand("fill", m)
        self.assertEqual({v.name for v in variants}, {"fill.A1.B3", "fill.A2.B3"})
        # f32 in two addressings, f16 in two addressings and packed, two defines.
        self.assertEqual(len(variants), 2 * (2 + 3))

    def test_workgroups_may_depend_on_defines(self):
        m = manifest.parse_manifest(FILL + "//! define: TILE=8,32\n//! local: 2*TILE,TILE\n")
        self.assertEqual({v.local for v in manifest.expand("fill", m)}, {(16, 8, 1), (64, 32, 1)})
        m = manifest.parse_manifest(FILL + "//! local: 2*TILE\n")
        with self.assertRaises(manifest.ManifestError):
            manifest.expand("fill", m)

    def test_defines_multiply_or_pair(self):
        self.assertEqual(manifest.parse_defines("A=1,2 B=3"), [{"A": "1", "B": "3"}, {"A": "2", "B": "3"}])
        self.assertEqual(manifest.parse_defines("A,B=1,2;3,4 C=5"),
                         [{"A": "1", "B": "2", "C": "5"}, {"A": "3", "B": "4", "C": "5"}])

    def test_mistakes_are_named(self):
        for extra in ("//! locl: 64", "//! grid: 2d", "//! texels: some", "//! requires: magic",
                      "//! buffers: y:V:write", "//! buffers: y:T:update"):
            with self.assertRaises(manifest.ManifestError):
                manifest.parse_manifest(FILL + extra)


class Cache(unittest.TestCase):
    def test_a_module_is_found_again_until_something_changes(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, REWIND_CACHE=folder):
            cache = toolchain.Cache(toolchain.Compiler(PROGRAM), "unused")
            path = cache.path("optimize", "source")
            self.assertFalse(cache.has(path))
            with open(path, "w"):
                pass
            self.assertTrue(cache.has(path))
            others = [cache.path("keep", "source"), cache.path("optimize", "other")]
            other = unittest.mock.Mock(version="glslang 99")
            others.append(toolchain.Cache(other, "unused").path("optimize", "source"))
            self.assertFalse(any(map(cache.has, others)))

    def test_what_was_not_used_for_long_goes(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, REWIND_CACHE=folder):
            cache = toolchain.Cache(toolchain.Compiler(PROGRAM), "unused")
            for name, time in (("old", 0), ("new", None)):
                with open(cache.path("keep", name), "w"):
                    pass
                if time is not None:
                    os.utime(cache.path("keep", name), (time, time))
            cache.clean()
            self.assertEqual([cache.has(cache.path("keep", name)) for name in ("old", "new")], [False, True])

    def test_without_a_folder_the_build_has_one(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"HOME": ""}, clear=True):
            cache = toolchain.Cache(toolchain.Compiler(PROGRAM), os.path.join(folder, "modules"))
            self.assertTrue(os.path.isdir(os.path.join(folder, "modules")))
            self.assertEqual(os.path.dirname(cache.path("keep", "")), os.path.join(folder, "modules"))

    def test_a_folder_that_others_can_write_to_is_not_used(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, REWIND_CACHE=folder + "/cache"):
            before = os.umask(0)
            own = toolchain.Cache(toolchain.Compiler(PROGRAM), folder + "/modules").folder
            os.umask(before)
            self.assertEqual(own, folder + "/cache/shaders")
            for path in (folder + "/cache", own):
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o700)
                os.chmod(path, 0o770)
                self.assertEqual(toolchain.Cache(toolchain.Compiler(PROGRAM), folder + "/modules").folder, folder + "/modules")
                os.chmod(path, 0o700)


class Dependencies(unittest.TestCase):
    def test_a_copied_tree_depends_on_its_own_files(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, build.__file__, "kernels", "kernels.h", "kernels.d"], cwd=folder, check=True)
            target, files = open(os.path.join(folder, "kernels.d")).read().split(":")
            files = files.split()
            self.assertEqual(target, "kernels.h")
            self.assertGreater(len(files), 50)
            for file in files:
                self.assertFalse(os.path.isabs(file), file)
                self.assertTrue(os.path.exists(os.path.join(folder, file)), file)


class Constants(unittest.TestCase):
    def parse(self, *lines):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernel.comp")
            with open(path, "w") as f:
                f.write("\n".join(lines) + "\n")
            return manifest.parse_constants(path)

    def test_values(self):
        found = self.parse("layout(constant_id = 1) const uint N = 4;  //! 4 16",
                           "layout(constant_id = 0) const bool B = true;  // no values needed",
                           "layout(constant_id = 3) const uint STEP = 8;  //! 8 64 others",
                           "layout(constant_id = 2) const uint OP = 0;  //! COMPARE")
        self.assertEqual(found, [("B", 1, [0, 1], False), ("N", 4, [4, 16], False), ("OP", 0, list(range(9)), False),
                                 ("STEP", 8, [8, 64], True)])

    def test_mistakes_are_named(self):
        for line in ("layout(constant_id = 0) const uint N = 4;", "layout(constant_id = 0) const uint N = 4;  //! 1 2",
                     "layout(constant_id = 1) const bool B = true;"):
            with self.assertRaises(manifest.ManifestError):
                self.parse(line)

    def test_every_declaration_is_seen(self):
        """A constant whose declaration is written in another way would have no effect."""
        files = [f for f in glob.glob(os.path.join(SHADERS, "*", "*")) if f.endswith((".comp", ".glsl"))]
        self.assertGreater(len(files), 150)
        for file in files:
            with open(file) as f:
                source = f.read()
                self.assertEqual(len(manifest.CONSTANT.findall(source)), source.count("constant_id"), file)

    def test_shared_arrays_hold_the_largest_workgroup(self):
        numbers = []
        for file, name in (("shaders/common/reduce.glsl", "#define MOST_THREADS"),
                           ("backends/vulkan/pipelines/pipelines.h", "most_row_threads =")):
            with open(os.path.join(SHADERS, "..", file)) as f:
                numbers.append(f.read().split(name)[1].split()[0].strip(";"))
        self.assertEqual(numbers[0], numbers[1])


class Compile(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def compile(self, text):
        """Returns {variant: (file, module)} of a kernel."""
        path = os.path.join(self.folder, "kernel.comp")
        with open(path, "w") as f:
            f.write(text)
        compiler = toolchain.Compiler(PROGRAM)
        with unittest.mock.patch.dict(os.environ, REWIND_CACHE=self.folder):
            made = build.Build([build.Kernel(path)], compiler, toolchain.Cache(compiler, "unused"))
        made.compile()
        return {build.tag(v): (file, spirv.Module.read(file)) for _, v, _, file in made.variants}

    def test_push_constants_are_reflected(self):
        modules = self.compile(FILL + "void main() { store_y(thread_id(), float(p.bits)); }\n")
        self.assertEqual(set(modules), {"kernel-T_f32", "kernel-T_f32-address", "kernel-T_f16", "kernel-T_f16-address",
                                        "kernel-T_f16-packed"})
        for name, (_, module) in modules.items():
            self.assertEqual(module.push_constant_bytes(), 16, name)  # and the first group
            self.assertEqual(module.bindings(), {0}, name)

    def test_bindings_that_are_read_have_texels(self):
        modules = self.compile("//! buffers: x:f32:read y:f32:read_write\n//! params: UnaryParams\n//! requires: texels\n"
                               "void main() { store_y(thread_id(), load_x(thread_id()) + load_y(thread_id())); }\n")
        self.assertEqual(modules["kernel-texels"][1].bindings(), {prelude.TEXELS, 1})

    def test_nothing_is_compiled_twice(self):
        text = FILL + "void main() { store_y(thread_id(), %s); }\n"
        times = [{os.stat(file).st_ino for file, _ in self.compile(text % value).values()} for value in "110"]
        self.assertEqual(times[0], times[1])
        self.assertFalse(times[0] & times[2])

    def test_what_is_the_same_is_stored_once(self):
        words = build.Words()
        modules = [module.words for _, module in self.compile(FILL + "void main() {}\n").values()]
        places = {words.add(module) for module in modules + modules}
        self.assertEqual(len(words.all), sum(len(module) for module in {bytes(m): m for m in modules}.values()))
        self.assertLessEqual(len(places), len(modules))

    def test_errors_have_the_kernels_line(self):
        with self.assertRaisesRegex(toolchain.CompileError, "kernel.comp:5: 'nonsense'"):
            self.compile(FILL + "void main() {\n  nonsense = 1;\n}\n")

    def test_errors_have_the_line_of_an_included_file(self):
        with open(os.path.join(self.folder, "part.glsl"), "w") as f:
            f.write("\nfloat part = nonsense;\n")
        with self.assertRaisesRegex(toolchain.CompileError, "part.glsl:2: 'nonsense'"):
            self.compile(FILL + f'#include "{self.folder}/part.glsl"\nvoid main() {{}}\n')

    def test_invalid_modules_are_refused(self):
        path = os.path.join(self.folder, "bad.spv")
        with open(path, "wb") as f:
            f.write(b"no module")
        with self.assertRaisesRegex(toolchain.CompileError, "spirv-val"):
            toolchain.Compiler(PROGRAM).run([("check", path, "-")])


if __name__ == "__main__":
    unittest.main()
