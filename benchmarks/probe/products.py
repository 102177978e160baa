#!/usr/bin/env python3
"""Finds what keeps products of f16 from a GPU's peak: products.comp without some of its parts, and other ways to make it.

    products.py FOLDER                  compiles the kernels and the program into FOLDER; then there, or where it is carried:
    cd FOLDER && ./products list        times them, and compares results

It needs glslangValidator 15.1 or later (matrices of workgroups), which Debian 12 lacks, and Vulkan headers of 1.4.300 or
later. benchmarks/results/h200.md has the results of a GPU."""
import argparse
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
LAYOUTS = {"nn": (1, 0), "nt": (1, 1), "tn": (0, 0)}  # whether the elements of a and b lie along k

# The macros of products.comp: the tile, the subgroups that make it, the matrices' shape, what is left out, and ways.
DEFAULTS = {"TILE_M": 128, "TILE_N": 128, "TILE_K": 32, "DOWN": 2, "ACROSS": 2, "SUBGROUP": 32, "MATRIX_M": 16,
            "MATRIX_N": 16, "MATRIX_K": 16, "SUM": "float", "FETCHES": 1, "SAME_PANELS": 0, "PUTS": 1, "LOADS": 1,
            "FEW_PRODUCTS": 0, "PAIRS": 2, "PIPELINED": 0, "UNUSED_WORDS": 0}

PARTS = {  # what is left of a product
    "instructions": {"LOADS": 0, "PUTS": 0},
    "instructions, 16x8x16": {"LOADS": 0, "PUTS": 0, "MATRIX_N": 8},
    "instructions, 16x8x8": {"LOADS": 0, "PUTS": 0, "MATRIX_N": 8, "MATRIX_K": 8},
    "instructions, f16 sums": {"LOADS": 0, "PUTS": 0, "SUM": "float16_t"},
    "shared loads": {"PUTS": 0, "FEW_PRODUCTS": 1},
    "and instructions": {"PUTS": 0},
    "and shared stores": {"FETCHES": 0},
    "and one panel": {"SAME_PANELS": 1},
}
WAYS = {
    "two pairs": {},
    "one pair": {"PAIRS": 1},
    "one pair, no second workgroup": {"PAIRS": 1, "UNUSED_WORDS": 1700},
    "pipelined": {"PIPELINED": 1},
    "pipelined, k 16": {"PIPELINED": 1, "TILE_K": 16},
    "pipelined, f16 sums": {"PIPELINED": 1, "SUM": "float16_t"},
    "256 x 128": {"TILE_M": 256, "DOWN": 4, "PAIRS": 1},
    "256 x 128, pipelined, k 16": {"TILE_M": 256, "DOWN": 4, "TILE_K": 16, "PIPELINED": 1},
    "128 x 256": {"TILE_N": 256, "ACROSS": 4, "PAIRS": 1},
}
BY_WORKGROUPS = {
    "by workgroups of 128": {},
    "by workgroups, 128 x 256": {"TILE_N": 256, "ACROSS": 4},
    "by workgroups, 256 x 256, f16 sums": {"TILE_M": 256, "TILE_N": 256, "ACROSS": 4, "SUM": "float16_t"},
}


def kernels(size):
    """Yields (name, source, macros, whether results are right)."""
    for name, macros in PARTS.items():
        yield name, "products.comp", macros, False
    for source, ways in (("products.comp", WAYS), ("workgroup.comp", BY_WORKGROUPS)):
        for name, macros in ways.items():
            for layout, (a, b) in LAYOUTS.items():
                yield f"{name}, {layout}", source, macros | {"A_ALONG_K": a, "B_ALONG_K": b}, True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=4096, help="rows, columns and terms")
    parser.add_argument("--glslang", default="glslangValidator")
    parser.add_argument("--include", help="a folder of newer Vulkan headers")
    o = parser.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (name, source, macros, is_checked) in enumerate(kernels(o.size)):
        m = DEFAULTS | {"A_ALONG_K": 1, "B_ALONG_K": 0} | macros
        subprocess.run([*o.glslang.split(), "-V", "--quiet", "--target-env", "vulkan1.3", *(f"-D{k}={v}" for k, v in m.items()),
                        str(HERE / source), "-o", str(o.folder / f"{number}.spv")], check=True)
        fields = (name.replace(" ", "_"), f"{number}.spv", m["TILE_M"], m["TILE_N"], o.size, o.size, o.size, m["A_ALONG_K"],
                  m["B_ALONG_K"], int(is_checked))
        lines.append(" ".join(map(str, fields)))
    (o.folder / "list").write_text("\n".join(lines) + "\n")
    compiler = shutil.which("c++") or "g++"
    subprocess.run([compiler, "-std=c++20", "-O2", *(["-isystem", o.include] if o.include else []), str(HERE / "products.cpp"),
                    "-o", str(o.folder / "products"), "-l:libvulkan.so.1"], check=True)


if __name__ == "__main__":
    main()
