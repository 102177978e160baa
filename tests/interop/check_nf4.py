#!/usr/bin/env python3
"""Holds decoders in NF4 with double quantisation against bitsandbytes, which quantises them on the CPU.

transformers saves a random model of SmolLM2's and one of Qwen2's kind with bitsandbytes. Its weights become floats here with
the bits of dequantize_4bit, and the logits are those of these floats, in blocks and as floats. Folders that are quantised
here have bitsandbytes' bits and open there. Other quantisations of bitsandbytes are refused.
`decoder_files` is `ninja -C build tests/interop/decoder_files`. Without the packages torch, transformers and bitsandbytes it
says so, with exit status 77.
Usage: check_nf4.py DECODER_FILES [--folder FOLDER], or check_nf4.py --needs, which only looks for the packages"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import bitsandbytes
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as error:
    print(f"there must be torch, transformers and bitsandbytes: {error}")
    sys.exit(77)

SHAPE = dict(vocab_size=500, num_hidden_layers=3, max_position_embeddings=128, initializer_range=0.06)
SHAPES = {
    "llama": dict(hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True),
    "qwen2": dict(hidden_size=128, intermediate_size=320, num_attention_heads=4, num_key_value_heads=2),
}
IDS = (torch.arange(40) * 37 % SHAPE["vocab_size"])[None]
failures = []
transformers.utils.logging.disable_progress_bar()


def expect(ok, *what):
    if not ok:
        failures.append(what)
        print("FAILED:", *what, flush=True)


def difference(a, b):
    """The largest difference, relative to the largest value."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def tensors_in(folder):
    return {name: tensor for part in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(part).items()}


def quantised(folder, **options):
    how = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32, **options)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=how)


def save_dequantised(whole, model, folder):
    """The same model with the floats of the blocks."""
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            floats = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            weight = whole.get_submodule(name).weight
            weight.data.copy_(floats.reshape(weight.shape))
    whole.save_pretrained(folder)


def check_kind(tool, folder, kind):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SHAPE, **SHAPES[kind])
    whole = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    whole.save_pretrained(folder / "whole")
    model = quantised(folder / "whole", bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    model.save_pretrained(folder / "nf4")
    save_dequantised(whole, model, folder / "floats")
    with torch.no_grad():
        theirs = whole(IDS).logits.numpy()

    subprocess.run([tool, "convert", folder / "nf4", folder / "ours"], check=True)
    ours, exact = (tensors_in(folder / where) for where in ("ours", "floats"))
    expect(ours.keys() == exact.keys(), kind, "names", ours.keys() ^ exact.keys())
    for name in ours.keys() & exact.keys():
        expect(torch.equal(ours[name], exact[name]), kind, "bits of", name)
    for command in ("logits", "blocks"):
        subprocess.run([tool, command, folder / "nf4", folder / "logits.npy", *map(str, IDS[0].tolist())], check=True)
        error = difference(np.load(folder / "logits.npy"), theirs)
        print(f"{kind}: {command} differ by {error:.1e}", flush=True)
        expect(error < 1e-4, kind, command, error)


def is_bitsandbytes(name, ours, exact):
    """Whether a tensor has bitsandbytes' bits. The offset of the scales is a mean, whose last bit depends on the order of its
    sum, and so do the factors of their groups, and the codes of scales that lie between two of them, which are close at 0."""
    if "quant_state" in name:
        return True
    if name.endswith(".nested_absmax"):
        return torch.allclose(ours, exact, rtol=1e-6, atol=0)
    if name.endswith(".absmax"):
        apart = (ours.int() - exact.int()).abs()
        return int(apart.max()) <= 2 and int(apart.sum()) <= 1 + len(apart) // 100
    return torch.equal(ours, exact)


def check_ours_there(tool, folder, kind):
    """A folder that is quantised here has bitsandbytes' bits, and opens there."""
    subprocess.run([tool, "convert", folder / "whole", folder / "made", "nf4"], check=True)
    ours, exact = (tensors_in(folder / where) for where in ("made", "nf4"))
    expect(ours.keys() == exact.keys(), kind, "names", ours.keys() ^ exact.keys())
    for name in ours.keys() & exact.keys():
        expect(is_bitsandbytes(name, ours[name], exact[name]), kind, "bits of", name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "made", dtype=torch.float32)
    layers = [name for name, module in model.named_modules() if isinstance(module, bitsandbytes.nn.Linear4bit)]
    expect(len(layers) == 7 * SHAPE["num_hidden_layers"], kind, "layers in 4 bits", layers)
    subprocess.run([tool, "blocks", folder / "made", folder / "logits.npy", *map(str, IDS[0].tolist())], check=True)
    with torch.no_grad():
        error = difference(np.load(folder / "logits.npy"), model(IDS).logits.numpy())
    print(f"{kind}: ours there differ by {error:.1e}", flush=True)
    expect(error < 1e-4, kind, "ours there", error)


def check_refusals(tool, folder):
    for options in (dict(bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=True), dict(bnb_4bit_quant_type="nf4")):
        quantised(folder / "whole", **options).save_pretrained(folder / "other")
        found = subprocess.run([tool, "logits", folder / "other", folder / "logits.npy", "1"], stderr=subprocess.PIPE, text=True)
        expect(found.returncode == 1 and "NF4 with double quantisation" in found.stderr, options, found.stderr)


def check(tool, folder):
    for kind in SHAPES:
        (folder / kind).mkdir(exist_ok=True)
        check_kind(tool, folder / kind, kind)
        check_ours_there(tool, folder / kind, kind)
    check_refusals(tool, folder / "qwen2")
    print(f"{len(failures)} failures")
    return bool(failures)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", type=Path, nargs="?")
    parser.add_argument("--needs", action="store_true")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.needs:
        return 0
    if options.folder:
        return check(options.tool.resolve(), options.folder)
    with tempfile.TemporaryDirectory() as folder:
        return check(options.tool.resolve(), Path(folder))


if __name__ == "__main__":
    sys.exit(main())
