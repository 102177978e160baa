#!/usr/bin/env python3
"""Tests the program for language models: training, files of both formats, texts, and what is refused.
Usage: test_lm.py FOLDER_OF_THE_PROGRAMS"""

import array
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from program_data import FAST, expect, run, write_data

CONFIG = {"model_type": "qwen3", "vocab_size": 1, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
          "tie_word_embeddings": True}
NEW = ("lm", "train", "--config", "config.json", "--vocab-size", "280", "--batch", "4", *FAST)
TRAIN = (*NEW, "--data", "text.txt", "--seq", "16")


def weights(folder, name):
    return (folder / name / "model.safetensors").read_bytes()


def change_weights(folder, name, factors, dtype):
    """Multiplies tensors of a folder of f32 weights, and names another dtype in its configuration."""
    path = folder / name / "model.safetensors"
    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    for tensor, factor in factors.items():
        first, last = (begin + at for at in json.loads(data[8:begin])[tensor]["data_offsets"])
        values = array.array("f", bytes(data[first:last]))
        data[first:last] = array.array("f", [x * factor for x in values]).tobytes()
    path.write_bytes(data)
    config = json.loads((folder / name / "config.json").read_text())
    (folder / name / "config.json").write_text(json.dumps({**config, "torch_dtype": dtype}))
    (folder / name / "rewind-files.txt").unlink()


def write_adapter(folder, name, columns=32):
    """An adapter of the queries as PEFT writes it, of rank 2."""
    (folder / name).mkdir()
    (folder / name / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "lora_dropout": 0.5, "target_modules": ["q_proj"], "bias": "none"}))
    header, data = {}, b""
    for layer in range(3):
        for part, shape in (("A", [2, columns]), ("B", [32, 2])):
            values = array.array("f", [(i * 37 % 101) / 50 - 1 for i in range(shape[0] * shape[1])]).tobytes()
            header[f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
            data += values
    text = json.dumps(header).encode()
    (folder / name / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_training(folder):
    """A run tells what it learns, and its peak is the forecast; segments and samples change no bit."""
    out, _ = run(folder, *TRAIN, "--steps", "12", "--save", "model", "--report", "report.json", "--sample", "the model")
    report = json.loads((folder / "report.json").read_text())
    expect("a text before training:\n  the model" in out and "a text after training:\n  the model" in out, "samples", out)
    expect("A dry run predicts this peak to the byte" in out, "the forecast", out)
    expect(report["held_out_loss"] < 5.63 and report["vocabulary"] == 280, "it learns", report)
    expect(f"perplexity {2.718281828 ** report['held_out_loss']:.1f}" in out, "perplexity", out)
    plan, _ = run(folder, *TRAIN, "--steps", "12", "--plan", "--report", "plan.json")
    peaks = (report["device"]["memory"]["peak"], report["device"]["predicted_peak"],
             json.loads((folder / "plan.json").read_text())["memory"]["peak"])
    expect("280 tokens" in plan and len(set(peaks)) == 1, "the plan", peaks, plan)

    run(folder, *TRAIN, "--steps", "12", "--save", "kept", "--checkpoint", "block", "--sample", "", "--quiet")
    expect(weights(folder, "kept") == weights(folder, "model"), "segments or samples change the weights")
    _, errors = run(folder, *NEW, "--data", "text.txt", "--seq", "65", status=1)
    expect("at most the model's 64 positions, got 65" in errors, "too long", errors)
    (folder / "short.txt").write_text("a")
    _, errors = run(folder, *NEW, "--data", "short.txt", "--seq", "16", status=1)
    expect("must have 34 tokens for windows of 16" in errors, "a short text", errors)


def test_memory(folder):
    """One number for memory: whatever is chosen stays within it, by hand, too, and keeps the weights where it can."""
    command = (*NEW[:-len(FAST) - 1], "8", *FAST, "--data", "text.txt", "--seq", "32", "--steps", "3", "--sample", "")

    def train(name, *options, status=0, **more):
        out, errors = run(folder, *command, *options, "--save", name, "--report", "report.json", status=status, **more)
        return (out, json.loads((folder / "report.json").read_text())["device"]["memory"]) if not status else errors
    _, plain = train("plain")
    for part, fixed in ((0.75, ()), (0.5, ()), (0.75, ("--accumulate", "1"))):
        bytes_ = str(int(plain["peak"] * part))
        out, memory = train("chosen", *fixed, "--memory", bytes_)
        by_hand = re.search("^By hand: (.*)$", out, re.M)[1].split()
        expect(memory["peak"] <= memory["peak_reserved"] <= int(bytes_) and "as it was asked for" in out
               and "An update was to take" in out, "one number", out)
        if "--batch" not in by_hand:  # the speeds are measured, so a loaded machine may choose smaller steps
            _, again = train("hand", *fixed, *by_hand, "--memory-limit", bytes_)
            expect(weights(folder, "hand") == weights(folder, "chosen"), "by hand", by_hand, again)
        if fixed:
            expect(weights(folder, "chosen") == weights(folder, "plain"), "an option that was given decides", out)
    out, memory = train("chosen", env={**os.environ, "REWIND_MEMORY": bytes_})
    expect(memory["peak_reserved"] <= int(bytes_) and "By hand:" in out, "the environment", out)
    out, _ = train("chosen", "--memory", "1GiB")
    expect("Nothing needs to change" in out and weights(folder, "chosen") == weights(folder, "plain"), "enough", out)
    errors = train("less", "--memory", "1000", status=1)
    expect("[memory] no way to take this update fits in 1000 B of the device" in errors and "The least is" in errors,
           "too little", errors)
    errors = train("two", "--memory", "1MiB", "--memory-budget", "1MiB", status=1)
    expect("excludes" in errors, "two numbers", errors)


def test_files(folder):
    """A model goes to GGUF and back without a change, and both files give the same texts and figures."""
    run(folder, *TRAIN, "--steps", "4", "--save", "model", "--quiet")
    run(folder, "lm", "convert", "model", "model.gguf", "--type", "f32")
    run(folder, "lm", "convert", "model.gguf", "back", "--type", "f32")
    expect(weights(folder, "back") == weights(folder, "model"), "the weights of a GGUF file")
    greedy = ("lm", "generate", "the model", "--temperature", "0", "--max-new-tokens", "20", *FAST)
    texts = [run(folder, *greedy, "--model", *more)[0] for more in (("model",), ("model.gguf",), ("model", "--no-cache"))]
    expect(texts[0].startswith("the model") and len(set(texts)) == 1, "three texts", *texts)
    measure = ("lm", "perplexity", "--data", "text.txt", "--context", "32", *FAST)
    figures = [run(folder, *measure, "--model", model)[0] for model in ("model", "model.gguf")]
    expect(figures[0].startswith("perplexity ") and figures[0] == figures[1], "figures", *figures)
    run(folder, "lm", "convert", "model", "small.gguf", "--type", "q8_0")
    expect((folder / "small.gguf").stat().st_size < (folder / "model.gguf").stat().st_size * 0.5, "8 bits")

    # A file is converted to its own dtype, and every command takes another tokenizer.
    out, _ = run(folder, "lm", "convert", "model", "own.gguf", "--tokenizer", "model/tokenizer.json")
    expect(" of f32," in out and (folder / "own.gguf").stat().st_size > 0.9 * (folder / "model.gguf").stat().st_size, "its dtype", out)
    other = ("--model", "own.gguf", "--tokenizer", "model")
    expect(run(folder, *greedy, *other)[0] == texts[0], "another tokenizer")
    expect(run(folder, *measure, *other)[0] == figures[0], "another tokenizer measures")
    run(folder, "lm", "train", "--data", "text.txt", *other, "--seq", "16", "--steps", "1", "--save", "third", "--quiet", *FAST)

    # Training goes on from either file.
    for number, model in enumerate(("model", "model.gguf")):
        run(folder, "lm", "train", "--data", "text.txt", "--model", model, "--seq", "16", "--steps", "3", "--save",
            f"next{number}", "--quiet", *FAST)
    expect(weights(folder, "next0") == weights(folder, "next1") != weights(folder, "model"), "two beginnings")


def test_adapters(folder):
    """An adapter changes what a model says, without dropout, and a merged model of either format says the same."""
    run(folder, *TRAIN, "--steps", "12", "--save", "model", "--quiet")
    write_adapter(folder, "adapter")
    ask = ("lm", "generate", "the model", "--temperature", "0", "--max-new-tokens", "20", *FAST)
    measure = ("lm", "perplexity", "--data", "text.txt", "--context", "32", *FAST)
    use = ("--model", "model", "--adapter", "adapter")
    for command in (ask, measure):
        adapted = run(folder, *command, *use)[0]
        expect(run(folder, *command, *use)[0] == adapted, "no dropout", command)
        expect(command == ask or run(folder, *command, "--model", "model")[0] != adapted, "it does something", adapted)
        for merged, *type in (("merged",), ("merged.gguf", "--type", "f32")):
            run(folder, "lm", "convert", "model", merged, "--adapter", "adapter", *type)
            expect(run(folder, *command, "--model", merged)[0] == adapted, "merged", merged, command, adapted)
    write_adapter(folder, "other", 33)
    for command in (ask, measure, ("lm", "convert", "model", "never")):
        _, errors = run(folder, *command, *(use[:2] if command[1] != "convert" else ()), "--adapter", "other", status=1)
        expect("with the shape (2, 32), got (2, 33)" in errors and errors.count("\n") == 1 and not (folder / "never").exists(), "another model's", errors)


def test_dtypes(folder):
    """A model runs in the dtype that its files name; where it overflows, an error names the op and a dtype that works."""
    run(folder, *TRAIN, "--steps", "4", "--save", "model", "--quiet")
    mlp = "model.layers.1.mlp."
    change_weights(folder, "model", {mlp + "up_proj.weight": 1e5, mlp + "down_proj.weight": 3e5}, "float16")
    cpu, model = ("--device", "cpu"), ("--model", "model")
    commands = (("lm", "generate", "the", "--max-new-tokens", "4", *cpu),
                ("lm", "perplexity", "--data", "text.txt", "--context", "32", *cpu),
                ("lm", "train", "--data", "text.txt", "--seq", "16", "--steps", "2", "--save", "out", "--sample", "", *cpu))
    for command in commands:
        out, errors = run(folder, *command, *model, status=1)
        expect(f"linear of '{mlp}down_proj.weight' (op " in errors and "--dtype bf16" in errors and "f16" in errors
               and errors.count("\n") == 1 and "perplexity" not in out, "an overflow", command, out, errors)
        run(folder, *command, *model, "--dtype", "bf16")
        run(folder, *command, *model, "--dtype", "f32")
    run(folder, "lm", "convert", "model", "small.gguf", "--type", "q8_0")
    expect("in bf16" in run(folder, *commands[1], "--model", "small.gguf")[0], "8 bits")
    for name, dtype in (("bfloat16", "bf16"), ("float32", "f32")):
        run(folder, *TRAIN, "--steps", "1", "--save", "model", "--quiet")
        change_weights(folder, "model", {}, name)
        expect(f"in {dtype}" in run(folder, *commands[1], *model)[0], "perplexity", name)
        expect(f"in {dtype} on" in run(folder, *commands[0], *model)[1], "a text", name)
        expect(f"in {dtype} on" in run(folder, *commands[2], *model)[0], "training", name)


def test_defaults(folder):
    """Options that are not given follow the work: a model that is loaded learns more without losing what it knew."""
    out, _ = run(folder, *TRAIN, "--steps", "60", "--save", "model", "--report", "new.json")
    expect("learning rate 0.00212, that of new language models" in out and "0.003 for 8" in out and "warm-up over 10 %" in out, "a new one", out)
    before = json.loads((folder / "new.json").read_text())["held_out_loss"]
    tune = ("lm", "train", "--model", "model", "--data", "text.txt", "--seq", "16", "--sample", "", *FAST)
    out, _ = run(folder, *tune, "--save", "tuned", "--report", "tuned.json")
    report = json.loads((folder / "tuned.json").read_text())
    expect("language models that are fine-tuned whole" in out and "; 1 pass over the data" in out, "its choice", out)
    expect(report["held_out_loss"] < before and report["lr"] <= 1e-4, "fine-tuning", before, report)
    out, _ = run(folder, *tune, "--epochs", "2", "--save", "twice")
    expect("; 2 passes over the data" in out, "two passes", out)

    # A rate that ruins the model ends the run, and what was there stays.
    whole = weights(folder, "model")
    ruin = (*tune, "--lr", "3", "--steps", "12", "--save", "model")
    _, errors = run(folder, *ruin, status=1)
    expect("must not exceed its initial value of" in errors and weights(folder, "model") == whole, "the ruin", errors)
    run(folder, *ruin, "--allow-rise")
    expect(weights(folder, "model") != whole, "told to go on")


def test_default_folder(folder):
    """A model in the default folder stays unless the command names the folder."""
    train = (*TRAIN, "--steps", "1", "--quiet")
    run(folder, *train)
    kept = folder / "cache/lm/model.safetensors"
    whole = kept.read_bytes()
    _, errors = run(folder, *train, "--seed", "2", status=1)
    expect("which is kept: --save names another place" in errors and kept.read_bytes() == whole, "kept", errors)
    run(folder, *train, "--seed", "2", "--save", "other")
    run(folder, *train, "--seed", "2", "--save", str(folder / "cache/lm"))
    expect(kept.read_bytes() != whole, "replaced")


def test_texts(folder):
    """Seeds repeat a text, strings end it, and what cannot be is one line."""
    run(folder, *TRAIN, "--steps", "4", "--save", "model", "--quiet")
    short = ("lm", "generate", "the", *FAST)
    ask = (*short, "--model", "model", "--max-new-tokens", "30")
    first, errors = run(folder, *ask, "--seed", "5")
    expect("tokens read in" in errors, "the rate", errors)
    expect(run(folder, *ask, "--seed", "5")[0] == first != run(folder, *ask, "--seed", "6")[0], "seeds", first)
    text = first[3:-1]
    stop = text[len(text) // 2:][:2]
    expect(run(folder, *ask, "--seed", "5", "--stop", stop)[0] == "the" + text[:text.index(stop)] + "\n", "a stop", first)
    for options, message in ((("--temperature", "-1"), "must not be negative"),
                             (("--chat",), "--chat-format chatml"),
                             (("--chat", "--chat-format", "x"), "chatml"),
                             (("--model", "nothing"), "nothing")):
        model = () if "--model" in options else ("--model", "model")
        _, errors = run(folder, *short, *model, *options, status=1)
        expect(message in errors and errors.count("\n") == 1, options, errors)
    out, _ = run(folder, *ask, "--chat", "--chat-format", "chatml")
    expect(not out.startswith("the"), "an answer", out)
    (folder / "model" / "rewind-files.txt").unlink()
    (folder / "model" / "chat_template.jinja").write_text("{{ raise_exception('no system') if messages[0].role == 'system' else messages[0].content }}")
    if subprocess.run([sys.executable, "-I", "-c", "import jinja2"], stderr=subprocess.DEVNULL).returncode == 0:
        expect(run(folder, *ask, "--chat", "--seed", "5")[0] == text + "\n", "a template that does nothing")
        _, errors = run(folder, *ask, "--chat", "--system", "x", status=1)
        expect("no system" in errors and errors.count("\n") == 1, "a template that refuses", errors)
    for to, type in (("x.gguf", "q2_k"), ("x", "q8_0")):
        _, errors = run(folder, "lm", "convert", "model", to, "--type", type, status=1)
        expect(type in errors and not (folder / to).exists(), "a type", errors)


for name, test in list(globals().items()):
    if name.startswith("test_"):
        with tempfile.TemporaryDirectory() as path:
            os.environ["REWIND_CACHE"] = path + "/cache"
            write_data(Path(path))
            (Path(path) / "config.json").write_text(json.dumps(CONFIG))
            test(Path(path))
print("language models are trained, written, read and asked")
