"""shaders/compile.py: manifests, variants, reflection, error positions."""
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SHADERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shaders")
sys.path.insert(0, SHADERS)

import compile as compiler  # noqa: E402
import module_cache  # noqa: E402
import spirv  # noqa: E402

FILL = """//! buffers: y:T:write
//! types: T = f32 f16
//! params: FillParams
"""


class Manifest(unittest.TestCase):
    def test_types_multiply_or_pair(self):
        self.assertEqual(len(compiler.parse_types("T = f32 f16; U = f32 i32 u8")), 6)
        self.assertEqual(compiler.parse_types("T,U = f32,f32 f16,f32"),
                         [{"T": "f32", "U": "f32"}, {"T": "f16", "U": "f32"}])

    def test_variants(self):
        m = compiler.parse_manifest(FILL + "//! define: A=1,2 B=3\n")
        variants = compiler.expand("fill", m)
        self.assertEqual({v.name for v in variants}, {"fill.A1.B3", "fill.A2.B3"})
        # f32 in two addressings, f16 in two addressings and two kinds of storage, two defines.
        self.assertEqual(len(variants), 2 * (2 + 4))
        m.address = "only"
        self.assertTrue(all(v.address for v in compiler.expand("fill", m)))

    def test_texels_are_for_what_is_preferred_and_described(self):
        m = compiler.parse_manifest("//! buffers: x:f16:read y:f16:write\n//! params: FillParams\n"
                                    "//! prefers: arithmetic\n//! texels: yes\n")
        with_texels = [v for v in compiler.expand("fill", m) if "texels" in v.requires]
        self.assertEqual([(v.packed, v.address, v.requires) for v in with_texels],
                         [(packed, False, ["arithmetic", "texels"]) for packed in (False, True)])
        self.assertTrue(all(v.defines == {"HAS_ARITHMETIC": 1} for v in with_texels))

    def test_workgroups_may_depend_on_defines(self):
        m = compiler.parse_manifest(FILL + "//! define: TILE=8,32\n//! local: 2*TILE,TILE\n")
        self.assertEqual({v.local for v in compiler.expand("fill", m)}, {(16, 8, 1), (64, 32, 1)})
        m = compiler.parse_manifest(FILL + "//! local: 2*TILE\n")
        with self.assertRaises(compiler.ManifestError):
            compiler.expand("fill", m)

    def test_defines_multiply_or_pair(self):
        self.assertEqual(compiler.parse_defines("A=1,2 B=3"), [{"A": "1", "B": "3"}, {"A": "2", "B": "3"}])
        self.assertEqual(compiler.parse_defines("A,B=1,2;3,4 C=5"),
                         [{"A": "1", "B": "2", "C": "5"}, {"A": "3", "B": "4", "C": "5"}])

    def test_mistakes_are_named(self):
        for extra in ("//! locl: 64", "//! grid: 2d", "//! texels: some", "//! requires: magic",
                      "//! buffers: y:V:write", "//! buffers: y:T:update"):
            with self.assertRaises(compiler.ManifestError):
                compiler.parse_manifest(FILL + extra)


class Cache(unittest.TestCase):
    def test_a_module_is_found_again_until_something_changes(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, REWIND_CACHE=folder):
            source, out = os.path.join(folder, "a.comp"), os.path.join(folder, "out.cpp")

            def entry(text, tools=("cat",)):
                with open(source, "w") as f:
                    f.write(text)
                return module_cache.Entry([source], tools)

            with open(out, "w") as f:
                f.write("compiled")
            self.assertFalse(entry("one").copy_to(out + ".copy"))
            entry("one").keep(out)
            self.assertTrue(entry("one").copy_to(out + ".copy"))
            with open(out + ".copy") as f:
                self.assertEqual(f.read(), "compiled")
            self.assertFalse(entry("two").copy_to(out + ".copy"))
            self.assertFalse(entry("one", ("cp",)).copy_to(out + ".copy"))

    def test_what_was_not_used_for_long_goes(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, REWIND_CACHE=folder):
            entry = module_cache.Entry([__file__], [])
            entry.keep(__file__)
            old = os.path.join(folder, "shaders", "old.cpp")
            with open(old, "w"):
                pass
            os.utime(old, (0, 0))
            entry.keep(__file__)
            self.assertEqual(os.listdir(os.path.join(folder, "shaders")), [os.path.basename(entry.file)])

    def test_without_a_folder_nothing_is_kept(self):
        with unittest.mock.patch.dict(os.environ, {"HOME": ""}, clear=True):
            entry = module_cache.Entry([__file__], [])
            entry.keep(__file__)
            self.assertFalse(entry.copy_to("/dev/null"))


class Constants(unittest.TestCase):
    def parse(self, *lines):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernel.comp")
            with open(path, "w") as f:
                f.write("\n".join(lines) + "\n")
            os.symlink(os.path.join(SHADERS, "elementwise.def"), os.path.join(folder, "elementwise.def"))
            return compiler.parse_constants(path)

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
            with self.assertRaises(compiler.ManifestError):
                self.parse(line)

    def test_every_declaration_is_seen(self):
        """One that is written otherwise would be asked for in vain."""
        for file in os.listdir(SHADERS):
            if file.endswith((".comp", ".glsl")):
                with open(os.path.join(SHADERS, file)) as f:
                    source = f.read()
                self.assertEqual(len(compiler.CONSTANT.findall(source)), source.count("constant_id"), file)

    def test_shared_arrays_hold_the_largest_workgroup(self):
        numbers = []
        for file, name in (("shaders/reduce.glsl", "#define MOST_THREADS"),
                           ("backends/vulkan/pipelines.h", "most_row_threads =")):
            with open(os.path.join(SHADERS, "..", file)) as f:
                numbers.append(f.read().split(name)[1].split()[0].strip(";"))
        self.assertEqual(numbers[0], numbers[1])


class Compile(unittest.TestCase):
    def compile(self, folder, body):
        path = os.path.join(folder, "kernel.comp")
        with open(path, "w") as f:
            f.write(FILL + body)
        os.symlink(os.path.join(SHADERS, "params"), os.path.join(folder, "params"))
        out = os.path.join(folder, "kernel.cpp")
        compiler.compile_module(path, out)
        return out

    def test_push_constants_are_reflected(self):
        with tempfile.TemporaryDirectory() as folder:
            out = self.compile(folder, "void main() { store_y(thread_id(), float(p.bits)); }\n")
            for file in os.listdir(out + ".d"):
                if file.endswith(".spv"):
                    module = spirv.Module.read(os.path.join(out + ".d", file))
                    self.assertEqual(module.push_constant_bytes(), 12, file)
                    self.assertEqual(module.bindings(), {0}, file)

    def test_bindings_that_are_read_have_texels(self):
        with tempfile.TemporaryDirectory() as folder:
            path, out = os.path.join(folder, "kernel.comp"), os.path.join(folder, "kernel.cpp")
            with open(path, "w") as f:
                f.write("//! buffers: x:f32:read y:f32:read_write\n//! params: UnaryParams\n//! texels: yes\n"
                        "void main() { store_y(thread_id(), load_x(thread_id()) + load_y(thread_id())); }\n")
            os.symlink(os.path.join(SHADERS, "params"), os.path.join(folder, "params"))
            compiler.compile_module(path, out)
            module = spirv.Module.read(os.path.join(out + ".d", "kernel-texels.spv"))
            self.assertEqual(module.bindings(), {compiler.prelude.TEXELS, 1})

    def test_errors_have_the_kernels_line(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(RuntimeError, "kernel.comp:5: 'nonsense'"):
                self.compile(folder, "void main() {\n  nonsense = 1;\n}\n")


if __name__ == "__main__":
    unittest.main()
