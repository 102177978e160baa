#!/usr/bin/env python3
"""Writes nf4.inc: matrices that bitsandbytes quantised to NF4 with double quantisation.

    pip install torch bitsandbytes; tests/goldens/make_nf4_goldens.py > tests/goldens/nf4.inc
"""
import bitsandbytes.functional as F
import torch


def matrix(rows, columns):
    """Returns values whose sums are exact, so that every order of sums gives one mean."""
    i = torch.arange(rows * columns)
    values = ((i * 7919 + i // 64 * 131) % 257 - 128) / 64 * (1 + i // 64 % 7)
    return values.float().reshape(rows, columns)


def numbers(tensor):
    return ", ".join(str(n) for n in tensor.reshape(-1).tolist())


def floats(tensor):
    return ", ".join(float(x).hex() + "f" for x in tensor.reshape(-1).tolist())


def main():
    print(f"// Made by make_nf4_goldens.py with bitsandbytes.\n"
          f"const std::vector<float> nf4_map_golden = {{{floats(F.create_dynamic_map())}}};\n"
          f"const std::vector<GoldenNf4> nf4_goldens = {{")
    for rows, columns in ((3, 128), (40, 512)):
        codes, state = F.quantize_4bit(matrix(rows, columns), quant_type="nf4", compress_statistics=True)
        back = F.dequantize_4bit(codes, state).reshape(-1)
        print(f"    {{{rows}, {columns}, {{{numbers(codes[:192])}}},\n     {{{numbers(state.absmax)}}},\n"
              f"     {float(state.offset).hex()}f, {{{floats(state.state2.absmax)}}},\n     {{{floats(back[-64:])}}}}},")
    print("};")


if __name__ == "__main__":
    main()
