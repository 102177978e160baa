"""Tests shaders/compiler/cooperative.py: modules with cooperative matrices, from the NV form to the KHR form."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shaders", "compiler"))

import compile as build  # noqa: E402
import cooperative  # noqa: E402
import spirv  # noqa: E402
import toolchain  # noqa: E402

COMPILER = toolchain.Compiler(sys.argv.pop(1))

HEADER = [0x07230203, 0x00010500, 11, 40, 0]
UINT, BOOL, FALSE, TRUE, HALF, FLOAT, N, LEFT, RIGHT, SUM = range(1, 11)
LEFT_SCOPE, RIGHT_SCOPE, SUM_SCOPE = 11, 12, 13
NEW = range(40, 45)  # the bound of HEADER, and what comes then: 0 to 3, and bf16

# (opcode, operands) of a module that multiplies, without a function, which the translator does not need.
HEAD = [(17, [5357]), (10, cooperative.extension("SPV_NV_cooperative_matrix"))]
CONSTANTS = [(21, [UINT, 32, 0]), (20, [BOOL]), (42, [BOOL, FALSE]), (41, [BOOL, TRUE]), (22, [HALF, 16]),
             (22, [FLOAT, 32]), (43, [UINT, N, 16]), (43, [UINT, LEFT_SCOPE, 0x103]),
             (43, [UINT, RIGHT_SCOPE, 0x203]), (43, [UINT, SUM_SCOPE, 0x303])]
TYPES = [(5358, [LEFT, HALF, LEFT_SCOPE, N, N]), (5358, [RIGHT, HALF, RIGHT_SCOPE, N, N]),
         (5358, [SUM, FLOAT, SUM_SCOPE, N, N])]
CODE = [(5359, [LEFT, 20, 30, 31, FALSE, 0x21, 32]), (5359, [RIGHT, 21, 30, 31, TRUE]),
        (5361, [SUM, 22, 20, 21, 23]), (5360, [30, 22, 31, FALSE, 0x21, 32])]


def nv(head=HEAD, constants=CONSTANTS, types=TYPES, code=CODE):
    return cooperative.joined(HEADER, head + constants + types + code)


def parts(words):
    return [(op, list(operands)) for op, operands in spirv.Module(words).instructions]


class Words(unittest.TestCase):
    def test_every_rule(self):
        words = cooperative.translate(nv())
        zero, one, two, three = NEW[:4]
        self.assertEqual(words[:5], HEADER[:3] + [44, 0])
        self.assertEqual(parts(words), [
            (17, [6022]), (10, cooperative.extension("SPV_KHR_cooperative_matrix")), *CONSTANTS,
            (43, [UINT, zero, 0]), (43, [UINT, one, 1]), (43, [UINT, two, 2]), (43, [UINT, three, 3]),
            (4456, [LEFT, HALF, three, N, N, zero]), (4456, [RIGHT, HALF, three, N, N, one]),
            (4456, [SUM, FLOAT, three, N, N, two]),
            (4457, [LEFT, 20, 30, zero, 31, 0x21, 32]), (4457, [RIGHT, 21, 30, one, 31]),
            (4459, [SUM, 22, 20, 21, 23]), (4458, [30, 22, zero, 31, 0x21, 32])])

    def test_factors_of_bf16(self):
        words = cooperative.translate(nv(), brain=True)
        found, brain = parts(words), NEW[4]
        self.assertEqual(words[3], 45)
        self.assertEqual([operands for op, operands in found if op == 17], [[6022], [5116], [5118]])
        self.assertEqual([operands for op, operands in found if op == 10],
                         [cooperative.extension(name) for name in ("SPV_KHR_cooperative_matrix", "SPV_KHR_bfloat16")])
        self.assertIn((22, [brain, 16, 0]), found)
        self.assertEqual([operands[1] for op, operands in found if op == 4456], [brain, brain, FLOAT])

    def test_extension_names_are_whole_words(self):
        self.assertEqual(cooperative.extension("abc"), [0x00636261])
        self.assertEqual(cooperative.extension("abcd"), [0x64636261, 0])

    def test_what_is_checked_has_each_type_once(self):
        found = parts(cooperative.checkable(nv(code=CODE + [(32, [35, 7, RIGHT])])))
        subgroup = HEADER[3]
        self.assertIn((43, [UINT, subgroup, 3]), found)
        self.assertEqual([operands for op, operands in found if op == 5358],
                         [[LEFT, HALF, subgroup, N, N], [SUM, FLOAT, subgroup, N, N]])
        self.assertIn((5359, [LEFT, 21, 30, 31, TRUE]), found)
        self.assertIn((32, [35, 7, LEFT]), found)


class Refusals(unittest.TestCase):
    def refuses(self, why, brain=False, **changes):
        with self.assertRaisesRegex(cooperative.Refused, why):
            cooperative.translate(nv(**changes), brain)

    def test_a_scope_says_the_use(self):
        for scope in (3, 0x403, 0x104):
            constants = [(43, [UINT, LEFT_SCOPE, scope]) if c[1][1:2] == [LEFT_SCOPE] else c for c in CONSTANTS]
            self.refuses(f"use above.* {scope:#x}", constants=constants)

    def test_literals(self):
        self.refuses("scope of a matrix must be a literal", types=[(5358, [LEFT, HALF, 33, N, N])])
        self.refuses("column major must be a literal", code=[(5359, [LEFT, 20, 30, 31, 33])])
        self.refuses("column major must be a literal", code=[(5360, [30, 22, 31, 33])])

    def test_lengths(self):
        self.refuses("length", code=[(5362, [UINT, 33, LEFT])])
        self.refuses("length", code=[(52, [UINT, 33, 5362, LEFT])])

    def test_a_conversion_keeps_the_use(self):
        other = (5358, [34, FLOAT, LEFT_SCOPE, N, N])
        self.refuses("conversion", code=CODE + [(115, [RIGHT, 33, 20])])
        cooperative.translate(nv(types=TYPES + [other], code=CODE + [(115, [34, 33, 20])]))

    def test_bf16_is_only_loaded(self):
        self.refuses("loaded", brain=True, code=[(80, [LEFT, 33, 31])])
        self.refuses("loaded", brain=True, code=[(44, [RIGHT, 33, 31])])
        self.refuses("sums of bf16", brain=True, types=[(5358, [SUM, HALF, SUM_SCOPE, N, N])])
        cooperative.translate(nv(code=CODE + [(80, [SUM, 33, 31])]), brain=True)

    def test_no_matrices(self):
        self.refuses("without matrices", types=[], code=[])


SOURCE = """#version 460
#extension GL_GOOGLE_include_directive : require
%s
#define MATRIX_M 8
#define MATRIX_N 16
#define MATRIX_K 16
#include "common/cooperative.glsl"
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer X { uvec4 x[]; };
shared uvec4 words[320];
void main() {
  words[gl_LocalInvocationID.x] = x[gl_LocalInvocationID.x];
  barrier();
  LeftMatrix a;
  RightMatrix b;
  SumMatrix c = SumMatrix(0.0);
  load_rows(a, words, 0, 5);
  load_columns(b, words, 80, 5);
  c = multiply_add(a, b, c);
  store_rows(c, words, 160, 5);
  barrier();
  x[gl_LocalInvocationID.x] = words[160 + gl_LocalInvocationID.x];
}
"""


class Compiled(unittest.TestCase):
    """Tests the macros with the installed compiler."""

    def compile(self, folder, brain, text=SOURCE):
        extensions, macros = cooperative.prelude(COMPILER.is_native(brain), brain)
        head = [f"#extension {e} : require" for e in extensions]
        head += [f"#define {name} {value}" for name, value in macros.items()]
        lines = build.Inliner().inline("a.comp", (text % "\n".join(head)).split("\n"))
        source, module = os.path.join(folder, "a.comp"), os.path.join(folder, "a.spv")
        with open(source, "w") as f:
            f.write("\n".join(lines))
        COMPILER.run([("plain", source, module)])
        return module, spirv.Module.read(module).words

    def test_both_forms_end_as_khr(self):
        for brain in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                module, words = self.compile(folder, brain)
                if not COMPILER.is_native(brain):
                    build.to_khr(module, brain, COMPILER)
                    words = spirv.Module.read(module).words
                found = spirv.Module(words).instructions
                self.assertEqual([op for op, _ in found if op in range(4456, 4461)],
                                 [4456] * 3 + [4457, 4457, 4459, 4458])
                self.assertFalse([op for op, _ in found if op in range(5357, 5363)])

    def test_uses_do_not_mix(self):
        mixed = SOURCE.replace("c = multiply_add(a, b, c);", "b = a;")
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(toolchain.CompileError, "cannot convert"):
            self.compile(folder, False, mixed)


if __name__ == "__main__":
    unittest.main()
