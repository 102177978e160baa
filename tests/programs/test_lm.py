#!/usr/bin/env python3
"""Tests the program for language models: training, files of both formats, texts, and what is refused.
Usage: test_lm.py FOLDER_OF_THE_PROGRAMS"""

import json
import os
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

    run(folder, *TRAIN, "--steps", "12", "--save", "kept", "--checkpoint", "none", "--sample", "", "--quiet")
    expect(weights(folder, "kept") == weights(folder, "model"), "segments or samples change the weights")
    _, errors = run(folder, *NEW, "--data", "text.txt", "--seq", "65", status=1)
    expect("at most the model's 64 positions, got 65" in errors, "too long", errors)
    (folder / "short.txt").write_text("a")
    _, errors = run(folder, *NEW, "--data", "short.txt", "--seq", "16", status=1)
    expect("must have 34 tokens for windows of 16" in errors, "a short text", errors)


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
    for to, type in (("x.gguf", "q4_k"), ("x", "q8_0")):
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
