#!/usr/bin/env python3
"""Tests the program for adapters: what it learns from instructions, its files, resuming, memory, and what is refused.
Usage: test_lora.py FOLDER_OF_THE_PROGRAMS"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from program_data import FAST, expect, run, write_data

CONFIG = {"model_type": "qwen3", "vocab_size": 1, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
          "tie_word_embeddings": True}
EVERY = {"model": "model", "data": "data.jsonl", "validation": "few.jsonl", "chat_format": "chatml", "seq": 64, "batch": 4,
         "rank": 4, "lr": 0.01}
ADAPTER = "adapter_model.safetensors"


def lora(*flags, **options):
    """A command with the usual options, but for those that are given; None leaves one out."""
    values = {**EVERY, **options}.items()
    return ("lora", *FAST, *flags, *(word for name, value in values if value is not None
                                     for word in ("--" + name.replace("_", "-"), str(value))))


def example(i):
    words = ("the", "model", "learns", "words")
    return {"messages": [{"role": "user", "content": " ".join(words[(i + k) % 4] for k in range(1 + i % 5))},
                         {"role": "assistant", "content": f"= {words[i % 4]}"}]}


def write_examples(folder):
    run(folder, "lm", "train", "--config", "config.json", "--vocab-size", "300", "--batch", "4", *FAST, "--data", "text.txt",
        "--seq", "64", "--steps", "100", "--lr", "0.01", "--save", "model", "--quiet")
    for name, numbers in (("data", range(60)), ("few", range(60, 70))):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(example(i)) + "\n" for i in numbers))


def read(folder, name):
    return json.loads((folder / name).read_text())


def newest_snapshot(folder):
    return max(folder.glob("step-*.safetensors"), key=lambda path: int(path.stem.split("-")[1]))


def test_training(folder):
    """The loss falls, the base stays, the forecast is right to the byte, and packing changes no result."""
    out, _ = run(folder, *lora(steps=30, save="out", report="report.json"))
    report = read(folder, "report.json")
    expect(report["validation_loss"] < 0.9 * report["before"]["validation_loss"], "it learns", report)
    before = re.search(r"^validation before training: loss (\S+), perplexity \S+$", out, re.M)
    after = re.search(r"^validation: loss (\S+), perplexity (\S+)$", out, re.M)
    expect(before and after and float(after[1]) < float(before[1]), "the validation", out)
    expect("an answer before training:\n  user\n" in out and "an answer after training:" in out, "answers", out)
    expect("A dry run predicts this peak to the byte" in out, "the forecast", out)
    expect("60 examples to train on and 10 to validate with" in out, "the data", out)
    config = read(folder, "out/adapter_config.json")
    expect((config["r"], config["lora_alpha"], config["peft_type"]) == (4, 32, "LORA"), "the adapter", config)
    plan, _ = run(folder, *lora("--plan", steps=30, report="plan.json"))
    peaks = read(folder, "plan.json")["memory"]["peak"], report["device"]["memory"]["peak"], report["device"]["predicted_peak"]
    expect(len(set(peaks)) == 1, "the plan", peaks, plan)

    # One row an example, all in one batch, or in nine: updates of the same tokens.
    losses = {}
    for name, flags, more in (("packed", (), {"batch": 60}), ("single", ("--no-packing",), {"batch": 60}),
                              ("parts", ("--no-packing",), {"batch": 7, "accumulate": 9})):
        run(folder, *lora("--quiet", *flags, epochs=2, save=name, report="one.json", **more))
        losses[name] = read(folder, "one.json")["validation_loss"]
    expect(max(losses.values()) - min(losses.values()) < 1e-4 * max(losses.values()), "packing and accumulation", losses)


def test_files(folder):
    """A merged model answers as the adapter does; the base's files are as they were."""
    whole = (folder / "model/model.safetensors").read_bytes()
    # Without a chat format, a completion follows its prompt.
    (folder / "plain.jsonl").write_text("".join(json.dumps({"prompt": "the model", "completion": " learns from text" * n}) + "\n"
                                                for n in range(1, 9)))
    out, _ = run(folder, *lora(steps=20, save="out", merge="merged", prompt="the model", data="plain.jsonl", validation=None,
                               test_share=0.2, chat_format=None))
    expect((folder / "model/model.safetensors").read_bytes() == whole, "the base")
    run(folder, "lm", "convert", "merged", "merged.gguf", "--type", "f32")
    for model in ("merged", "merged.gguf"):
        text, _ = run(folder, "lm", "generate", "the model", "--model", model, "--temperature", "0", "--max-new-tokens", "60", *FAST)
        words = text.split()
        answer = out.split("an answer after training:")[1].split()
        expect(len(words) > 3 and answer[:len(words)] == words, "the merged model", text, out)
    run(folder, *lora("--quiet", "--dora", model="merged.gguf", steps=2, save="again"))


def test_resuming(folder):
    """A run that stops and resumes ends with the bits of one that does not."""
    def train(name, **more):
        run(folder, *lora("--quiet", accumulate=2, steps=14, save=name, **more))
        return (folder / name / ADAPTER).read_bytes()

    kept = {"resume": "snapshots", "snapshot_every": 5}
    whole = train("whole")
    expect(train("kept", **kept) == whole, "snapshots change bits")
    newest = newest_snapshot(folder / "snapshots")
    saved = newest.read_bytes()
    expect(b"lora_A" in saved and b"embed_tokens" not in saved, "snapshots have the base")
    newest.unlink()
    expect(train("resumed", **kept) == whole, "resuming changes bits")
    base = (folder / "model/model.safetensors").read_bytes()
    run(folder, "lm", "train", "--config", "config.json", "--vocab-size", "300", *FAST, "--data", "text.txt", "--seq", "32",
        "--steps", "3", "--save", "retrained", "--quiet")
    shutil.copyfile(folder / "retrained/model.safetensors", folder / "model/model.safetensors")
    (folder / "model/rewind-files.txt").unlink(missing_ok=True)
    _, errors = run(folder, *lora("--quiet", accumulate=2, steps=14, save="other", **kept), status=1)
    expect("another base model" in errors and errors.count("\n") == 1, "another base", errors)
    (folder / "model/model.safetensors").write_bytes(base)
    expect(train("segments", checkpoint="block") == whole, "segments change bits")
    with (folder / "data.jsonl").open("a") as file:
        file.write(json.dumps(example(70)) + "\n")
    _, errors = run(folder, *lora("--quiet", accumulate=2, steps=14, save="other", **kept), status=1)
    expect("the data" in errors, "other data", errors)


def test_memory(folder):
    """One number for memory decides how the same updates are taken."""
    def train(**options):
        out, _ = run(folder, *lora(batch=8, steps=3, save="out", report="report.json", **options))
        return out, read(folder, "report.json")["device"]["memory"], (folder / "out" / ADAPTER).read_bytes()

    _, plain, adapter = train()
    limit = int(plain["peak"] * 0.8)
    out, chosen, same = train(accumulate=1, memory=limit)
    expect("By hand:" in out and chosen["peak_reserved"] <= limit and same == adapter, "one number", out)


def test_weights_in_their_file(folder):
    """A base whose matrices stay in its file gives the same adapter."""
    (folder / "wide.json").write_text(json.dumps({**CONFIG, "hidden_size": 128, "intermediate_size": 256, "head_dim": 32}))
    run(folder, "lm", "train", "--config", "wide.json", "--vocab-size", "300", *FAST, "--data", "text.txt", "--seq", "32",
        "--steps", "2", "--save", "wide", "--quiet")
    run(folder, "lm", "convert", "wide", "wide.gguf", "--type", "f32")
    for model in ("wide", "wide.gguf"):
        found = {}
        for place in ("none", "parameters", "file"):
            run(folder, *lora("--quiet", model=model, steps=4, batch=1, seq=96, checkpoint="block", save="out", offload=place,
                              report="report.json"))
            device = read(folder, "report.json")["device"]
            expect(device["memory"]["peak"] == device["predicted_peak"], "the forecast", place, device)
            found[place] = (folder / "out" / ADAPTER).read_bytes()
        expect(len(set(found.values())) == 1, "other bits", model)
        for _ in range(2):
            run(folder, *lora("--quiet", model=model, steps=4, batch=1, seq=96, checkpoint="block", save="out", offload="file",
                              resume=f"{model}-snapshots", snapshot_every=1))
            expect((folder / "out" / ADAPTER).read_bytes() in found.values(), "resumed from the file", model)
            newest_snapshot(folder / f"{model}-snapshots").unlink()
    run(folder, "lm", "convert", "wide", "halves", "--type", "bf16")
    for options, message in (({"model": "wide", "merge": "m"}, "--merge writes to them"),
                             ({"model": "halves"}, "they become f32 on their way")):
        _, errors = run(folder, *lora(steps=1, save="new", offload="file", **options), status=1)
        expect(message in errors and errors.count("\n") == 1 and not (folder / "new").exists(), message, errors)
    _, errors = run(folder, "lm", "train", "--config", "wide.json", "--data", "text.txt", "--offload", "file", status=1)
    expect("file" in errors, "a program that trains all weights", errors)


def test_nf4(folder):
    """A base in NF4, as bitsandbytes stores it, learns, its forecast is exact, and it is merged into floats."""
    (folder / "wide.json").write_text(json.dumps({**CONFIG, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}))
    run(folder, "lm", "train", "--config", "wide.json", "--vocab-size", "300", *FAST, "--data", "text.txt", "--seq", "32",
        "--steps", "60", "--lr", "0.01", "--save", "wide", "--quiet")
    run(folder, "lm", "convert", "wide", "nf4", "--type", "nf4")
    expect((folder / "nf4/model.safetensors").stat().st_size < 0.5 * (folder / "wide/model.safetensors").stat().st_size, "its size")
    run(folder, *lora("--quiet", model="nf4", steps=20, save="out", merge="whole", report="report.json"))
    report = read(folder, "report.json")
    expect(report["validation_loss"] < 0.9 * report["before"]["validation_loss"], "it learns", report)
    expect(report["device"]["memory"]["peak"] == report["device"]["predicted_peak"], "the forecast", report)
    _, errors = run(folder, *lora(model="nf4", steps=1, save="new", offload="file"), status=1)
    expect("NF4 lie in several tensors" in errors and not (folder / "new").exists(), "NF4 in its file", errors)
    # A model that is merged by training equals one that is merged later, also where the weights stay in their file.
    run(folder, "lm", "convert", "nf4", "merged", "--adapter", "out")
    expect((folder / "merged/model.safetensors").read_bytes() == (folder / "whole/model.safetensors").read_bytes(), "merged weights")
    run(folder, "lm", "convert", "nf4", "merged.gguf", "--type", "q8_0", "--adapter", "out")
    run(folder, *lora("--quiet", model="merged.gguf", steps=2, seq=32, checkpoint="block", offload="file", save="out", merge="q8.gguf"))
    run(folder, "lm", "convert", "merged.gguf", "again.gguf", "--adapter", "out")
    expect((folder / "q8.gguf").read_bytes() == (folder / "again.gguf").read_bytes(), "merged weights of a file")
    _, errors = run(folder, "lm", "convert", "wide", "bad.gguf", "--type", "nf4", status=1)
    expect("got 'nf4'" in errors, "NF4 in GGUF", errors)


def test_refusals(folder):
    """Bad examples and options end a run with one line that says what to do."""
    good = json.dumps(example(0)) + "\n"
    for text, message in (("", "must have an example"), (good + "{", "line 2 of 'bad.jsonl': must be a JSON object"),
                          (good + '{"messages": [{"role": "user", "content": "a"}]}', "line 2 of 'bad.jsonl': must have an answer"),
                          (good, "two examples or more to train and to validate")):
        (folder / "bad.jsonl").write_text(text)
        _, errors = run(folder, *lora(data="bad.jsonl", validation=None, save="out"), status=1)
        expect(message in errors and errors.count("\n") == 1 and not (folder / "out").exists(), message, errors)
    for flags, options, message in (((), {"chat_format": "alpaca"}, 'got "alpaca"'), ((), {"rank": 0}, "rank"),
                                    ((), {"target": "nothing"}, "nothing"),
                                    ((), {"seq": 129}, "at most the model's 128 positions"),
                                    ((), {"test_share": 2}, "--test-share must be in (0, 1)"),
                                    (("--refuse-long",), {"seq": 16}, "more than the 17 of a row"),
                                    ((), {"data": None}, "--model, the model to fine-tune, and --data")):
        _, errors = run(folder, *lora(*flags, save="out", **options), status=1)
        expect(message in errors and errors.count("\n") == 1 and not (folder / "out").exists(), message, errors)
    run(folder, "lm", "train", "--config", "config.json", "--vocab-size", "400", *FAST, "--data", "text.txt", "--seq", "32",
        "--steps", "1", "--save", "large", "--quiet")
    _, errors = run(folder, *lora(tokenizer="large", save="out"), status=1)
    expect("tokens" in errors and "vocab_size" in errors, "a tokenizer of another model", errors)


def test_demo(folder):
    """Without a model and examples, a small model learns to answer in a form."""
    out, _ = run(folder, "lora", *FAST, "--report", "report.json", "--save", "demo")
    report = read(folder, "report.json")
    before, after = (out.split(f"an answer {when} training:")[1] for when in ("before", "after"))
    expect(re.search(r"The name is (\w+); the kind is (\w+)\.", before.split("adapters of")[0]), "a sentence", out)
    expect(re.search(r"The kind: \w+; the name: \w+\.\n", after), "the form", out)
    expect("A dry run predicts this peak to the byte" in out, "the forecast", out)
    expect(report["validation_loss"] < 0.3, "the loss", report)
    expect((folder / "demo" / ADAPTER).exists() and (folder / "cache/lora-demo/examples.jsonl").exists(), "files")
    again, _ = run(folder, "lora", *FAST, "--steps", "1")
    expect("training a small model" not in again, "the model is kept", again)


with tempfile.TemporaryDirectory() as made:
    write_data(Path(made))
    (Path(made) / "config.json").write_text(json.dumps(CONFIG))
    os.environ["REWIND_CACHE"] = made + "/cache"
    write_examples(Path(made))
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as path:
                os.environ["REWIND_CACHE"] = path + "/cache"
                shutil.copytree(made, path, dirs_exist_ok=True)
                test(Path(path))
print("adapters learn from instructions, and are written, merged and resumed")
