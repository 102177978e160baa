#!/usr/bin/env python3
"""Prints the results of compilers for the tiles of GPUs, as Markdown: the rows of benchmarks/results/machine-code.md.

    machine_code.py LABEL=FILE.json ...    FILE: of `info --pipelines --json --count TEXT`, one device each

A row per module and label, for one value of its constants: words of 16 bytes in and out, a's along k and b's along n where
there is a choice. TEXT is the name of a load of 16 bytes in the device's assembler (`buffer_load_b128`,
`buffer_load_dwordx4` before RDNA 3): the last column counts it. Labels name whatever is compared: devices, commits,
other programs whose pipelines were written down in the same form."""
import json
import re
import sys

# The names of the same thing in different drivers: RADV, NVK, Honeykrisp, Turnip.
COLUMNS = {
    "registers": ("VGPRs", "Number of GPRs", "GPRs", "Registers used"),
    "waves": ("Subgroups per SIMD", "Max warps/SM", "Threads", "Max Waves Per Core"),
    "instructions": ("Instructions", "Instruction count", "Instruction Count"),
    "latency": ("Latency", "Static cycle count"),
    "throughput": ("Inverse Throughput",),
}
CHOSEN = ({"LEFT_ALONG_K=0", "RIGHT_ALONG_K=1"}, {"WORDS_IN=0", "WORDS_OUT=0", "WORDS_X=0", "WORDS_W=0", "ADDS=1"})


def is_shown(pipeline):
    constants = set(pipeline["constants"].split())
    return ("_tiled" in pipeline["kernel"] or pipeline["kernel"].startswith("mul_mm")) and \
        pipeline["bindings"] == "descriptors" and "packed" not in pipeline["storage"] and \
        "words" not in pipeline["storage"] and "bf16" not in pipeline["dtypes"] and \
        len(set(pipeline["dtypes"].split())) == 1 and not any(constants & out for out in CHOSEN)


def tile_of(name):
    return int(re.search(r"\d+$", name).group())


def rows_of(label, path):
    with open(path, encoding="utf-8") as file:
        pipelines = json.load(file)[0]["pipelines"]
    for p in filter(is_shown, pipelines):
        numbers = [next((f"{p['driver'][n]:.0f}" for n in names if n in p["driver"]), "") for names in COLUMNS.values()]
        dtype = p["dtypes"].split()[0]
        yield (p["kernel"].split(".")[0], tile_of(p["kernel"]), dtype, label), numbers + [str(p.get("spills", "")), str(p.get("found", ""))]


def main():
    rows = dict(row for argument in sys.argv[1:] for row in rows_of(*argument.split("=", 1)))
    if not rows:
        sys.exit(__doc__)
    print("| kernel | tile | type | | " + " | ".join(list(COLUMNS) + ["spills", "16-byte loads"]) + " |")
    print("|---" * (len(COLUMNS) + 6) + "|")
    order = {argument.split("=", 1)[0]: i for i, argument in enumerate(sys.argv[1:])}
    for key in sorted(rows, key=lambda k: (k[0], k[2], -k[1], order[k[3]])):
        print("| " + " | ".join([str(k) for k in key] + rows[key]) + " |")


if __name__ == "__main__":
    main()
