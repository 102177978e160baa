"""Cooperative matrices from compilers that are older than VK_KHR_cooperative_matrix.

glslang learnt GL_KHR_cooperative_matrix in version 13; before, it knew only GL_NV_cooperative_matrix. The two are
alike, so translate() turns a module of the second into one of the first. The one thing that the KHR form has in addition,
the use of a matrix, stands in the source above the low byte of the scope (cooperative.glsl):
0x103 is the left factor of a subgroup, 0x203 the right one, 0x303 their sum, and so they are types that do
not mix. The numbers are those of SPV_NV_cooperative_matrix, SPV_KHR_cooperative_matrix and SPV_KHR_bfloat16.
"""
import spirv
from toolchain import BRAIN, HALF

LEFT, RIGHT, SUM = 0, 1, 2  # uses

OP_NAME, OP_MEMBER_NAME, OP_EXTENSION, OP_CAPABILITY = 5, 6, 10, 17
OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_ARRAY, OP_TYPE_FUNCTION = 21, 22, 28, 33
OP_CONSTANT_TRUE, OP_CONSTANT_FALSE, OP_CONSTANT, OP_CONSTANT_COMPOSITE, OP_SPEC_CONSTANT_OP = 41, 42, 43, 44, 52
OP_DECORATE, OP_MEMBER_DECORATE, OP_COMPOSITE_CONSTRUCT, OP_F_CONVERT = 71, 72, 80, 115
NO_VALUES = (OP_NAME, OP_MEMBER_NAME, OP_DECORATE, OP_MEMBER_DECORATE)

NV_CAPABILITY, NV_TYPE, NV_LOAD, NV_STORE, NV_MULTIPLY, NV_LENGTH = 5357, 5358, 5359, 5360, 5361, 5362
KHR_CAPABILITY, KHR_TYPE, KHR_LOAD, KHR_STORE, KHR_MULTIPLY = 6022, 4456, 4457, 4458, 4459
BFLOAT16_TYPE, BFLOAT16_MATRIX, BFLOAT16_ENCODING = 5116, 5118, 0

class Refused(RuntimeError):
    pass


def prelude(is_native, brain):
    """(extensions, macros) of a module's source, for a compiler that knows the KHR form or not."""
    if not is_native:
        # bf16 is a matter of translation: the source says f16 and never looks into a factor.
        return ["GL_NV_cooperative_matrix", HALF[0]], {"KHR_MATRICES": 0, "FACTOR": "float16_t"}
    extension, factor = BRAIN if brain else HALF
    return ["GL_KHR_cooperative_matrix", "GL_KHR_memory_scope_semantics", extension], {"KHR_MATRICES": 1, "FACTOR": factor}


def extension(name):
    """Returns the operands of an OpExtension."""
    text = name.encode() + b"\0" * (4 - len(name) % 4)
    return [int.from_bytes(text[i:i + 4], "little") for i in range(0, len(text), 4)]


def joined(header, instructions):
    words = list(header)
    for op, operands in instructions:
        words += [len(operands) + 1 << 16 | op, *operands]
    return words


def checkable(words):
    """Returns a module of the NV form without the uses, as spirv-val knows it: all scopes are subgroups, and
    matrix types that are then equal are one."""
    module, subgroup = spirv.Module(words), words[3]
    first, same, out = {}, {}, []
    for op, operands in module.instructions:
        # A type is named by other types, and as the first operand of an instruction that makes a value.
        end = len(operands) if op in range(OP_TYPE_ARRAY, OP_TYPE_FUNCTION + 1) else 1
        operands = [same.get(word, word) for word in operands[:end]] + list(operands[end:])
        if op == NV_TYPE:
            if not first:
                uint = next(a[0] for o, a in module.instructions if o == OP_TYPE_INT and list(a[1:]) == [32, 0])
                out.append((OP_CONSTANT, [uint, subgroup, 3]))
            operands[2] = subgroup
            known = first.setdefault(tuple(operands[1:]), operands[0])
            if known != operands[0]:
                same[operands[0]] = known
                continue
        out.append((op, operands))
    return joined([*words[:3], words[3] + 1, words[4]], out)


class Translator:
    def __init__(self, words, brain):
        self.module, self.brain = spirv.Module(words), brain
        self.header, self.bound = list(words[:5]), words[3]
        self.constants, self.booleans, self.floats = {}, {}, {}  # by id: value, value, bits
        self.uint = None
        self.uses = {}  # matrix type: its use
        self.value_uses = {}  # matrix value: its type's use
        self.numbers = []  # ids of the constants 0 to 3
        self.bfloat16 = None
        self.out = []

    def new_id(self):
        self.bound += 1
        return self.bound - 1

    def declare(self):
        """Declares what the types need, before the first of them."""
        if self.uint is None:
            raise Refused("a matrix type before uint")
        for value in range(4):
            self.numbers.append(self.new_id())
            self.out.append((OP_CONSTANT, [self.uint, self.numbers[value], value]))
        if self.brain:
            self.bfloat16 = self.new_id()
            self.out.append((OP_TYPE_FLOAT, [self.bfloat16, 16, BFLOAT16_ENCODING]))

    def matrix_type(self, operands):
        result, component, scope, rows, columns = operands
        if scope not in self.constants:
            raise Refused("the scope of a matrix must be a literal")
        use, scope = (self.constants[scope] >> 8) - 1, self.constants[scope] & 0xff
        if use not in (LEFT, RIGHT, SUM) or scope > 3:
            raise Refused(f"a matrix's scope must be 3 and have a use above, as 0x103 has, got {self.constants[operands[2]]:#x}")
        if not self.numbers:
            self.declare()
        self.uses[result] = use
        if self.brain and self.floats.get(component) == 16:
            if use == SUM:
                raise Refused("sums of bf16 products must be f32")
            component = self.bfloat16
        return KHR_TYPE, [result, component, self.numbers[scope], rows, columns, self.numbers[use]]

    def layout(self, column_major):
        if column_major not in self.booleans:
            raise Refused("row or column major must be a literal")
        return self.numbers[self.booleans[column_major]]

    def head(self, op, operands):
        """Returns the capabilities and extensions: [(op, operands)]."""
        if op == OP_CAPABILITY and operands[0] == NV_CAPABILITY:
            capabilities = [KHR_CAPABILITY] + [BFLOAT16_TYPE, BFLOAT16_MATRIX] * self.brain
            return [(op, [capability]) for capability in capabilities]
        if op == OP_EXTENSION and list(operands) == extension("SPV_NV_cooperative_matrix"):
            names = ["SPV_KHR_cooperative_matrix"] + ["SPV_KHR_bfloat16"] * self.brain
            return [(op, extension(name)) for name in names]
        return [(op, operands)]

    def remember(self, op, operands):
        if op == OP_TYPE_INT and list(operands[1:]) == [32, 0]:
            self.uint = operands[0]
        elif op == OP_TYPE_FLOAT:
            self.floats[operands[0]] = operands[1]
        elif op == OP_CONSTANT and operands[0] == self.uint:
            self.constants[operands[1]] = operands[2]
        elif op in (OP_CONSTANT_TRUE, OP_CONSTANT_FALSE):
            self.booleans[operands[1]] = int(op == OP_CONSTANT_TRUE)
        elif operands and operands[0] in self.uses and op not in NO_VALUES:
            self.value(op, operands)

    def value(self, op, operands):
        use = self.uses[operands[0]]
        if op == OP_F_CONVERT and self.value_uses.get(operands[2], use) != use:
            raise Refused("a conversion must not change what a matrix is used for")
        if self.brain and use != SUM and op in (OP_CONSTANT_COMPOSITE, OP_COMPOSITE_CONSTRUCT, OP_F_CONVERT):
            raise Refused("factors of bf16 must be loaded, not made of f16")
        self.value_uses[operands[1]] = use

    def instruction(self, op, operands):
        """Returns the instruction in the KHR form."""
        if op == NV_TYPE:
            return self.matrix_type(operands)
        if op == NV_LOAD:  # type, result, pointer, stride, column major, memory operands
            return KHR_LOAD, [*operands[:3], self.layout(operands[4]), operands[3], *operands[5:]]
        if op == NV_STORE:  # pointer, matrix, stride, column major, memory operands
            return KHR_STORE, [*operands[:2], self.layout(operands[3]), operands[2], *operands[4:]]
        if op == NV_MULTIPLY:
            return KHR_MULTIPLY, operands
        if op == NV_LENGTH or (op == OP_SPEC_CONSTANT_OP and operands[2] == NV_LENGTH):
            raise Refused("no length() of matrices: the KHR form has none that is a constant")
        return op, operands

    def run(self):
        for op, operands in self.module.instructions:
            self.remember(op, operands)
            self.out += self.head(*self.instruction(op, operands))
        if not self.uses:
            raise Refused("a module without matrices")
        self.header[3] = self.bound
        return joined(self.header, self.out)


def translate(words, brain=False):
    """Returns a module of the NV form in the KHR form; with `brain`, factors of f16 become factors of bf16. It refuses a module
    that lacks what the KHR form must know."""
    return Translator(words, brain).run()
