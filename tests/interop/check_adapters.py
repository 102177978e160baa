#!/usr/bin/env python3
"""Holds adapters against PEFT, both ways: LoRA, rsLoRA, DoRA and ranks by patterns, of small random models of Llama and Qwen3.

Rewind trains an adapter and PEFT gives the same logits with it, and other ones than the model without it; PEFT makes one
and Rewind gives the same logits and the same losses in 200 steps; merged models are those of merge_and_unload; GGUF files
have the names, shapes and values that llama.cpp's convert_lora_to_gguf.py writes.
`adapter_files` is `ninja -C build tests/interop/adapter_files`. Without the packages torch, transformers, peft and gguf it
says so, with exit status 77.
Usage: check_adapters.py ADAPTER_FILES [--folder FOLDER], or check_adapters.py --needs, which only looks for the packages"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import gguf
    import numpy as np
    import peft
    import torch
    import transformers
except ImportError as error:
    print(f"there must be torch, transformers, peft and gguf: {error}")
    sys.exit(77)

FORMS = {"lora": {}, "rslora": dict(use_rslora=True), "dora": dict(use_dora=True),
         "pattern": dict(rank_pattern={"q_proj": 3, "model.layers.1.mlp.up_proj": 5}, alpha_pattern={"v_proj": 40})}
STEPS, RATE = 200, 2e-4  # above it, losses jump, and then rounding decides
failures = []
transformers.utils.logging.disable_progress_bar()


def expect(ok, *what):
    if not ok:
        failures.append(what)
        print("FAILED:", *what, flush=True)


def difference(a, b):
    """The largest difference, relative to the largest value."""
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())


def learns(losses):
    """Whether the last pass over the four texts has smaller losses than the first."""
    return sum(losses[-4:]) < sum(losses[:4]) - 0.1


def texts(step):
    """As in adapter_files.cpp."""
    i = torch.arange(2 * 33)
    return ((i * i + 7 * i + 13 * (step % 4)) % 97).reshape(2, 33)


def model_of(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model):
    with torch.no_grad():
        return model(texts(0)).logits.numpy()


def losses(model):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0)
    found = []
    for step in range(STEPS):
        ids = texts(step)
        loss = model(ids, labels=ids).loss
        found.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return found


def in_file_order(name, b, config):
    """Rows of q and k of llama, as convert_hf_to_gguf.py permutes them."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-1])
    if config.model_type != "llama" or heads is None:
        return b
    return b.reshape(heads, 2, b.shape[0] // heads // 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)


def check_gguf(file, adapter, config, form):
    from safetensors.numpy import load_file
    reader = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    expect(fields["general.type"] == "adapter" and fields["adapter.type"] == "lora", "types", fields)
    expect(fields["general.architecture"] == config.model_type, "architecture", fields)
    alpha = 16 * (8 ** 0.5 if form == "rslora" else 1)
    expect(abs(fields["adapter.lora.alpha"] - alpha) < 1e-4, "alpha", fields)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, config.model_type.upper()), config.num_hidden_layers)
    wanted = {}
    for key, value in load_file(adapter / "adapter_model.safetensors").items():
        layer, part = key.removeprefix("base_model.model.").removesuffix(".weight").rsplit(".lora_", 1)
        value = in_file_order(layer, value, config) if part == "B" else value
        wanted[f"{names.get_name(layer)}.weight.lora_{part.lower()}"] = value
    found = {tensor.name: tensor.data for tensor in reader.tensors}
    expect(found.keys() == wanted.keys(), "names", found.keys() ^ wanted.keys())
    for name in found.keys() & wanted.keys():
        expect(np.array_equal(found[name], wanted[name]), "values of", name)


def check_form(ours, folder, form, options):
    base = folder / "model"

    def their_model(adapter, trains=False):
        return peft.PeftModel.from_pretrained(model_of(base), adapter, is_trainable=trains)

    def our_logits(model, adapter):
        ours("logits", model, adapter, folder / "logits.npy")
        return np.load(folder / "logits.npy")

    # Ours there.
    trained = folder / f"{form}-ours"
    curve = [float(x) for x in ours("train", base, form, trained, 20, 3e-3).split()]
    expect(learns(curve), form, "learns", curve)
    model, mine = their_model(trained), our_logits(base, trained)
    plain, adapted = logits(model_of(base)), logits(model)
    print(f"{form}: ours there differs by {difference(adapted, mine):.1e}, from the base by {difference(plain, mine):.1e}")
    expect(difference(adapted, mine) < 1e-4, form, "logits there")
    expect(difference(plain, mine) > 1e-2, form, "is inert")
    ours("merge", base, trained, folder / f"{form}-merged")
    merged = logits(model_of(folder / f"{form}-merged"))
    expect(difference(merged, logits(model.merge_and_unload())) < 1e-4, form, "merged", difference(merged, mine))

    # Theirs here.
    torch.manual_seed(3)
    model = peft.get_peft_model(model_of(base), peft.LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.02)
            elif "magnitude" in name:
                parameter.mul_(1.1)
    made = folder / f"{form}-theirs"
    model.save_pretrained(made)
    error = difference(our_logits(base, made), logits(model))
    mine = [float(x) for x in ours("train", base, made, folder / f"{form}-after", STEPS, RATE).split()]
    theirs = losses(their_model(made, trains=True).train())
    worst = max(abs(a - b) for a, b in zip(mine, theirs))
    print(f"{form}: theirs here differs by {error:.1e}; losses {mine[0]:.4f} to {mine[-1]:.4f}, apart by {worst:.1e}")
    expect(error < 1e-4, form, "logits here")
    expect(len(mine) == STEPS and learns(mine) and worst < 1e-3, form, "losses", mine, theirs)
    if form in ("lora", "rslora"):
        ours("gguf", base, made, folder / f"{form}.gguf")
        check_gguf(folder / f"{form}.gguf", made, model.config, form)


def check(tool, folder):
    def ours(*words):
        return subprocess.run([tool, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout

    for kind in ("llama", "qwen3"):
        (folder / kind).mkdir(exist_ok=True)
        ours("make", kind, folder / kind / "model")
        print(f"{kind}:", flush=True)
        for form, options in FORMS.items():
            check_form(ours, folder / kind, form, options)
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
