#!/usr/bin/env python3
"""Writes gguf.inc: blocks of each quantised type of GGUF as random bytes, and their values by the gguf package.

Needs the gguf package (Debian: python3-gguf), which llama.cpp's developers publish. Types of 32
elements have also values that they round. Usage: make_gguf_goldens.py > gguf.inc"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

READ = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
ELEMENTS = 256


def scales_of(name):
    """Where the f16 numbers of a block begin."""
    return {"Q6_K": [208], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2]}.get(name, [0])


def text(values, form):
    return "{" + ", ".join(form.format(v) for v in values) + "}"


def row(name, random):
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = random.integers(0, 256, (ELEMENTS // block, size), dtype=np.uint8)
    for at in scales_of(name):  # random bits would be infinite at times
        blocks[:, at:at + 2] = random.normal(size=(len(blocks), 1)).astype(np.float16).view(np.uint8)
    values = quants.dequantize(blocks.reshape(1, -1), GGMLQuantizationType[name]).ravel()
    return f'    {{"{name}",\n     {text(blocks.ravel(), "{}")},\n     {text(values, "{:.9g}")}}},'


random = np.random.default_rng(1)
print("// Made by make_gguf_goldens.py; do not edit. Rows: type, bytes of its blocks, their 256 values.")
print("const std::vector<GoldenBlocks> golden_blocks = {")
print(*(row(name, random) for name in READ), sep="\n")
print("};\n// Values, among them halves between two codes, a block of zeros and small ones.")
values = random.normal(size=(8, 32)).astype(np.float32)
values[1] = 0
values[2] = (np.arange(32) - 15.5) / 4
values[2, 0] = 127 / 2  # a scale of one half, exactly
values[3] *= np.float32(1e-7)
values[4, 5:] = 0
print("const std::vector<float> unrounded =", text(values.ravel(), "{:.9g}") + ";")
print("// Types with the blocks of these values.")
print("const std::vector<std::pair<std::string, std::vector<uint8_t>>> rounded = {")
for name in ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]:
    print(f'    {{"{name}", {text(quants.quantize(values.reshape(1, -1), GGMLQuantizationType[name]).ravel(), "{}")}}},')
print("};")
