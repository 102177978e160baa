"""Reads from a SPIR-V module what the backend must know of it."""
import array
import functools
import itertools

OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_VECTOR, OP_TYPE_ARRAY, OP_TYPE_STRUCT = 21, 22, 23, 28, 30
OP_TYPE_POINTER, OP_CONSTANT, OP_FUNCTION, OP_VARIABLE, OP_DECORATE, OP_MEMBER_DECORATE = 32, 43, 54, 59, 71, 72
ARRAY_STRIDE, BINDING, OFFSET = 6, 33, 35
PUSH_CONSTANT = 9


class Module:
    def __init__(self, words):
        if words[0] != 0x07230203:
            raise RuntimeError("not a SPIR-V module")
        self.words = words

    @functools.cached_property
    def instructions(self):
        return list(self.scan())

    @functools.cached_property
    def declarations(self):
        """Returns the instructions before the first function, a tenth of all, which are those that reflection needs."""
        return list(itertools.takewhile(lambda instruction: instruction[0] != OP_FUNCTION, self.scan()))

    def scan(self):
        i = 5
        while i < len(self.words):
            length = self.words[i] >> 16
            yield self.words[i] & 0xFFFF, self.words[i + 1:i + length]
            i += length

    @staticmethod
    def read(path):
        words = array.array("I")
        with open(path, "rb") as f:
            words.frombytes(f.read())
        return Module(words)

    def bindings(self):
        """Returns the binding numbers in use."""
        return {a[2] for op, a in self.declarations if op == OP_DECORATE and a[1] == BINDING}

    def push_constant_bytes(self):
        """Returns the size of the push constant block, 0 without one."""
        types = {a[0]: (op, a[1:]) for op, a in self.declarations
                 if op in (OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_VECTOR, OP_TYPE_ARRAY,
                           OP_TYPE_STRUCT, OP_TYPE_POINTER)}
        constants = {a[1]: a[2] for op, a in self.declarations if op == OP_CONSTANT}
        strides = {a[0]: a[2] for op, a in self.declarations
                   if op == OP_DECORATE and a[1] == ARRAY_STRIDE}
        offsets = {(a[0], a[1]): a[3] for op, a in self.declarations
                   if op == OP_MEMBER_DECORATE and a[2] == OFFSET}

        def size(type_id):
            op, a = types[type_id]
            if op in (OP_TYPE_INT, OP_TYPE_FLOAT):
                return a[0] // 8
            if op == OP_TYPE_VECTOR:
                return size(a[0]) * a[1]
            if op == OP_TYPE_ARRAY:
                return strides[type_id] * constants[a[1]]
            return offsets[type_id, len(a) - 1] + size(a[-1])

        for op, a in self.declarations:
            if op == OP_VARIABLE and a[2] == PUSH_CONSTANT:
                return size(types[a[0]][1][1])
        return 0


def write(path, words):
    with open(path, "wb") as f:
        array.array("I", words).tofile(f)
