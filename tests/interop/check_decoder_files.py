#!/usr/bin/env python3
"""Holds the files of decoders against transformers, gguf and llama.cpp, both ways, for a model of each family.

Logits of theirs here and of ours there, names and bits of tensors, metadata, greedy tokens, every quantised type.
`decoder_files` is `ninja -C build tests/interop/decoder_files`. The other programs may be in another root folder:
then ORACLE is the command that runs a command there, and FOLDER is at the same path there. Without these programs it says
so, with exit status 77.
Usage: check_decoder_files.py DECODER_FILES [--folder FOLDER] [--oracle "ORACLE"], or check_decoder_files.py --needs, which
only looks for them"""

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K"]
SCRIPT = Path(__file__).parent / "oracle.py"


def check(tool, oracle, folder):
    def ours(*words):
        return subprocess.run([tool, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout

    def theirs(command):
        (folder / "oracle.py").write_text(SCRIPT.read_text())
        print(f"oracle.py {command}", flush=True)
        with open(folder / f"{command}.log", "w") as log:
            return subprocess.run([*oracle, "python3", folder / "oracle.py", command, folder], stdout=subprocess.PIPE,
                                  stderr=log, text=True, check=command != "compare")

    names, prompt = (line.split() for line in theirs("make").stdout.splitlines()[-2:])
    for name in names:
        at = folder / name
        ours("convert", at / "theirs", at / "ours")
        for kind, suffix in (("f32", ""), ("f16", "-F16"), ("bf16", "-BF16"), ("q8_0", "-Q8_0")):
            file = at / f"ours{suffix}.gguf"
            ours("convert", at / "ours", file, kind, folder / "tokenizer.gguf")
            file.with_suffix(".tokens").write_text(ours("greedy", file, 64, *prompt))
    theirs("convert")
    for name in names:
        at = folder / name
        for which in ("ours", "ours.gguf", "theirs.gguf"):
            ours("logits", at / which, at / f"{which}.npy", *prompt)
        for kind in QUANTISED:
            if (at / f"{kind}.gguf").exists():
                ours("dequantise", at / f"{kind}.gguf", at / f"{kind}.safetensors")
                ours("logits", at / f"{kind}.gguf", at / f"{kind}.npy", *prompt)
    result = theirs("compare")
    print(result.stdout, end="")
    return result.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", type=Path, nargs="?")
    parser.add_argument("--needs", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--oracle", type=shlex.split, default=[])
    options = parser.parse_args()
    needs = "import transformers, gguf, safetensors, shutil, sys; sys.exit(not shutil.which('llama-server'))"
    if subprocess.run([*options.oracle, "python3", "-c", needs], stderr=subprocess.DEVNULL).returncode != 0:
        print("there must be transformers, gguf, safetensors and llama-server")
        return 77
    if options.needs:
        return 0
    if options.folder:
        return check(options.tool, options.oracle, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        return check(options.tool, options.oracle, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
