#!/usr/bin/env python3
"""Holds Python's training against C++'s to the last bit: adapters of a decoder, within one number of memory, and as `lora` does.

    python3 check_python.py BUILD

The interpreter must have the package rewind; BUILD has apps/lora and tests/interop/adapter_files and lora_rows.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import rewind as rw

STEPS = 6


def texts(step, vocabulary):
    """Those of adapter_files.cpp."""
    i = np.arange(2 * 33)
    return ((i * i + 7 * i + 13 * (step % 4)) % vocabulary).astype(np.int32).reshape(2, 33)


def train(folder, form, steps=STEPS):
    """Trains as adapter_files does, and returns the losses and the model."""
    model = rw.nn.Decoder.from_files(folder, dtype="f32")
    rw.manual_seed(2)
    rw.lora.add(model, rank=8, alpha=16, rank_stabilized=form == "rslora", dora=form == "dora")
    optimizer = rw.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0)
    losses = []
    for step in range(steps):
        ids = texts(step, model.vocabulary)
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        losses.append(np.float32(loss.item()))
        optimizer.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return losses, model


def same_adapters(folder, model, base):
    """The number of tensors of the adapter in folder/theirs, which are those of the model."""
    rw.lora.save(folder / "ours", model, base_model=str(base))
    ours, theirs = (rw.load_safetensors(folder / f / "adapter_model.safetensors") for f in ("ours", "theirs"))
    assert ours.keys() == theirs.keys() and len(ours) > 0
    for key in ours:
        assert ours[key].numpy().tobytes() == theirs[key].numpy().tobytes(), key
    return len(ours)


def check_within_one_number(build, folder):
    program, base, found = build / "tests/interop/adapter_files", folder / "base", {}
    subprocess.run([program, "make", "qwen3", base], check=True)
    limit = rw.dry_run(lambda: train(base, "lora", 2))["reserved"] * 3 // 4
    for form, memory in (("lora", None), ("rslora", None), ("dora", None), ("lora", limit)):
        theirs = subprocess.run([program, "train", base, form, folder / "theirs", str(STEPS), "3e-3", *([str(memory)] if memory else [])],
                                check=True, capture_output=True, text=True).stdout.split()
        rw.default_device().trim()
        with rw.memory(memory) if memory else contextlib.nullcontext():
            losses, model = train(base, form)
        assert losses == [np.float32(v) for v in theirs], (form, memory, losses, theirs)
        tensors, found[form, memory] = same_adapters(folder, model, base), losses
        del model
        print(f"{form:7}{f'within {rw.format_bytes(memory)}' if memory else '':20} {STEPS} losses and {tensors} tensors have the same bits")
    assert found["lora", None] == found["lora", limit]


def check_program(build, folder):
    """The program `lora` on the model of its demonstration, and the same batches in Python."""
    lora, length, batch, seed, rate = build / "apps/lora", 64, 4, 3, 3e-3
    subprocess.run([lora, "--steps", "1", "--device", "cpu", "--quiet"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "REWIND_CACHE": str(folder)})
    model_of, data = folder / "lora-demo/model", folder / "lora-demo/examples.jsonl"
    subprocess.run([lora, "--model", model_of, "--data", data, "--steps", str(STEPS), "--seed", str(seed), "--batch", str(batch), "--seq",
                    str(length), "--rank", "4", "--lr", str(rate), "--dtype", "f32", "--device", "cpu", "--quiet", "--save", folder / "theirs"],
                   check=True, stdout=subprocess.DEVNULL)
    rows = folder / "rows.safetensors"
    subprocess.run([build / "tests/interop/lora_rows", model_of, data, str(length), str(batch), str(seed), str(STEPS), rows], check=True)
    batches = rw.load_safetensors(rows)
    rw.manual_seed(seed)
    model = rw.nn.Decoder.from_files(model_of, dtype="f32")
    rw.lora.add(model, rank=4, alpha=32)
    optimizer = rw.optim.Accumulate(rw.optim.AdamW(model.parameters(), lr=rate, weight_decay=0), 1)
    optimizer.set_max_norm(1)
    optimizer.set_schedule(rw.optim.Schedule.cosine(STEPS, warmup=1))
    for step in range(STEPS):
        ids, targets, starts = (batches[f"{name}.{step}"] for name in ("ids", "targets", "starts"))
        optimizer.backward(model.loss(ids, targets, starts), (targets.numpy() != -100).sum())
        optimizer.step()
        optimizer.zero_grad()
    print(f"as the program lora: {same_adapters(folder, model, model_of)} tensors have the same bits after {STEPS} steps")


def main():
    rw.set_default_device("cpu")
    for check in (check_within_one_number, check_program):
        with tempfile.TemporaryDirectory() as folder:
            check(Path(sys.argv[1]), Path(folder))


if __name__ == "__main__":
    main()
