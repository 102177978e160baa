#!/usr/bin/env python3
"""Plain programs in PyTorch beside the tasks of `./rewind experiment defaults`. Each reads from the command and the report of
a run what data it had and how many samples it saw, trains as long by its field's usual recipe, and writes its points.
Sentences and texts need transformers and tokenizers.
Usage: defaults.py TASK --command JSON --report FILE --result FILE [--seed N]"""

import argparse
import gzip
import json
import math
import os
import struct
import sys
import wave
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
import resnet_cifar  # noqa: E402: its files and its augmentation
from speed import resnet20  # noqa: E402


def option(command, name):
    return command[command.index(name) + 1]


def train(model, optimizer, steps, batches, loss_of, decay, warmup=0.1, clip=0):
    """Takes `steps` steps; the rate rises, then falls by decay(progress)."""
    rising = max(1, round(warmup * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: (i + 1) / rising if i < rising else decay((i - rising) / max(1, steps - rising)))
    model.train()
    for i in range(steps):
        loss = loss_of(next(batches))
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
    model.eval()


def cosine(progress):
    return 0.5 * (1 + math.cos(math.pi * progress))


def linear(progress):
    return 1 - progress


def epochs(count, batch):
    """Endless batches of numbers below `count`, each once per epoch; the last one of an epoch is left out if it is not full."""
    while True:
        order = torch.randperm(count)
        for first in range(0, count - batch + 1, batch):
            yield order[first:first + batch]


# ---- images --------------------------------------------------------------------------------------

def pixels(path, size):
    """The pixels of a PNG file without filters, which the experiment wrote, at another size: [3, size, size]."""
    data, at, packed, width, height = path.read_bytes(), 8, b"", 0, 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[at + 8:at + 16])
        packed += data[at + 8:at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    rows = torch.frombuffer(bytearray(zlib.decompress(packed)), dtype=torch.uint8).view(height, 1 + 3 * width)[:, 1:]
    image = rows.reshape(1, height, width, 3).permute(0, 3, 1, 2).float() / 255
    return F.interpolate(image, (size, size), mode="bilinear", antialias=True)[0]


def photographs(folder, split, size):
    names = sorted(path.name for path in (folder / split).iterdir())
    found = [(pixels(path, size), label) for label, name in enumerate(names) for path in sorted((folder / split / name).iterdir())]
    return torch.stack([image for image, _ in found]), torch.tensor([label for _, label in found])


def classify_images(train_set, test_set, batch, steps):
    """ResNet-20 by SGD with momentum, 0.1 for 128 images and in proportion for others (He et al. 2016, Goyal et al. 2017)."""
    (images, labels), (test_images, test_labels) = train_set, test_set
    mean, std = images.mean((0, 2, 3)).view(3, 1, 1), images.std((0, 2, 3)).view(3, 1, 1)
    model = resnet20()
    model[-1] = nn.Linear(64, int(labels.max()) + 1)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 1e-4},
              {"params": [p for p in model.parameters() if p.dim() <= 1]}]
    optimizer = torch.optim.SGD(groups, lr=0.1 * batch / 128, momentum=0.9, nesterov=True)

    def augmented(chosen):
        size, padded = images.shape[-1], F.pad(images[chosen], (4, 4, 4, 4))
        mirrored = torch.rand(len(chosen)) < 0.5
        padded[mirrored] = padded[mirrored].flip(3)
        rows, columns = (torch.randint(9, (len(chosen), 1)) + torch.arange(size) for _ in range(2))
        return padded[torch.arange(len(chosen))[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

    train(model, optimizer, steps, epochs(len(images), batch),
          lambda chosen: F.cross_entropy(model((augmented(chosen) - mean) / std), labels[chosen]), cosine)
    with torch.no_grad():
        hits = sum((model((x - mean) / std).argmax(1) == y).sum().item()
                   for x, y in zip(test_images.split(100), test_labels.split(100)))
    return 100 * hits / len(test_labels)


def run_photographs(command, report):
    folder, size = Path(option(command, "--data")), report["image"]
    return classify_images(photographs(folder, "train", size), photographs(folder, "val", size), report["batch"], report["steps"])


def run_cifar(command, report):
    folder = option(command, "--data")
    return classify_images(resnet_cifar.records(folder, [f"data_batch_{i}.bin" for i in range(1, 6)]),
                           resnet_cifar.records(folder, ["test_batch.bin"]), report["batch"], report["steps"])


def idx(folder, name):
    data = gzip.decompress((Path(folder) / name).read_bytes())
    return torch.frombuffer(bytearray(data[16 if "images" in name else 8:]), dtype=torch.uint8)


def run_digits(command, report):
    """A perceptron with dropout by Adam's own rate, 1e-3, in batches of 100."""
    folder, count, passes = option(command, "--data"), int(option(command, "--images")), int(option(command, "--epochs"))
    images, labels = idx(folder, "train-images-idx3-ubyte.gz").view(-1, 784).float() / 255, idx(folder, "train-labels-idx1-ubyte.gz").long()
    images, labels = images[:count], labels[:count]
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, passes * count // 100, epochs(count, 100),
          lambda chosen: F.cross_entropy(model(images[chosen]), labels[chosen]), lambda _: 1, 0)
    test = idx(folder, "t10k-images-idx3-ubyte.gz").view(-1, 784).float() / 255
    with torch.no_grad():
        return 100 * (model(test).argmax(1) == idx(folder, "t10k-labels-idx1-ubyte.gz").long()).float().mean().item()


# ---- texts ---------------------------------------------------------------------------------------

def decayed(model, rate, decay=0.01):
    return torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
                              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0}], lr=rate)


def run_sentences(command, report):
    """BERT's own recipe for fine-tuning: a warm-up over a tenth, linearly to 0, clipped to 1. Rates of 3e-5 to 3e-4 are tried
    for small models (Turc et al. 2019); it is the largest. Larger ones have the run's, so that the recipe is the same."""
    from transformers import BertForSequenceClassification, BertTokenizerFast
    folder = Path(option(command, "--model"))
    model = BertForSequenceClassification.from_pretrained(folder)
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))

    def read(name):
        rows = [line.split("\t") for line in (Path(option(command, "--task")) / name).read_text().splitlines()[1:]]
        return [row[0] for row in rows], torch.tensor([int(row[1]) for row in rows])

    def inputs(texts):
        return tokenizer(texts, truncation=True, max_length=64, padding=True, return_tensors="pt")
    (texts, labels), (dev, dev_labels) = read("train.tsv"), read("dev.tsv")
    rate = 3e-4 if model.config.hidden_size <= 256 else report["lr"]
    train(model, decayed(model, rate), report["steps"], epochs(len(texts), report["batch"]),
          lambda chosen: model(**inputs([texts[i] for i in chosen]), labels=labels[chosen]).loss, linear, clip=1)
    with torch.no_grad():
        hits = sum((model(**inputs(dev[i:i + 64])).logits.argmax(1) == dev_labels[i:i + 64]).sum().item()
                   for i in range(0, len(dev), 64))
    return 100 * hits / len(dev)


def run_text(command, report):
    """A new model by AdamW with 1e-3, as small ones are trained (nanoGPT); a loaded one with 5e-5, transformers' own default. It
    has the tokenizer, the windows and the held-out twentieth of the run."""
    from tokenizers import Tokenizer
    from transformers import AutoConfig, AutoModelForCausalLM
    is_loaded = "--model" in command
    folder = option(command, "--model" if is_loaded else "--save")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) if is_loaded else \
        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    ids = torch.tensor(Tokenizer.from_file(folder + "/tokenizer.json").encode(
        Path(option(command, "--data")).read_text(), add_special_tokens=False).ids)
    length, batch = report["seq"], report["batch"]
    held_out = len(ids) - max(len(ids) // 20, length + 1)

    def windows(part):
        count = (len(part) - 1) // length
        return [part[begin:begin + count * length].view(count, length) for begin in (0, 1)]

    def loss_of(x, y):
        return F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
    x, y = windows(ids[:held_out])
    train(model, decayed(model, 5e-5 if is_loaded else 1e-3), report["steps"], epochs(len(x), min(batch, len(x))),
          lambda chosen: loss_of(x[chosen], y[chosen]), linear if is_loaded else cosine, clip=1)
    test_x, test_y = windows(ids[held_out:])
    with torch.no_grad():
        losses = [loss_of(a, b).item() * len(a) for a, b in zip(test_x.split(8), test_y.split(8))]
    return -100 * sum(losses) / len(test_x)


# ---- speech --------------------------------------------------------------------------------------

def log_mels(path, mels=80):
    """Logarithms of mel energies of windows of 25 ms, one every 10 ms: [frames, mels]."""
    with wave.open(str(path)) as file:
        rate, sound = file.getframerate(), torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16)
    size, hop = rate // 40, rate // 100
    power = torch.stft(sound.float() / 32768, size, hop, window=torch.hann_window(size), return_complex=True).abs().square()
    mel = torch.linspace(0, 2595 * math.log10(1 + rate / 1400), mels + 2)
    edges = 700 * (10 ** (mel / 2595) - 1) * size / rate
    at = torch.arange(power.shape[0])
    rise, fall = ((at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None],
                  (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None])
    return (torch.minimum(rise, fall).clamp(min=0) @ power + 1e-6).log().T


class Recogniser(nn.Module):
    """Two convolutions of stride 2 and an LSTM, of the sizes of the run, by whole words."""

    def __init__(self, classes, channels, hidden, mels=80):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(mels, channels, 5, 2, 2), nn.Conv1d(channels, channels, 5, 2, 2)])
        self.norms = nn.ModuleList([nn.LayerNorm(channels), nn.LayerNorm(channels)])
        self.lstm, self.drop, self.head = nn.LSTM(channels, hidden, batch_first=True), nn.Dropout(0.1), nn.Linear(hidden, classes)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x.transpose(1, 2)).transpose(1, 2)).relu()
        return self.head(self.drop(self.lstm(x)[0])).log_softmax(-1)


def word_errors(said, heard):
    """The words that must be put in, left out or replaced."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def run_speech(command, report):
    """CTC by AdamW with Adam's own rate, 1e-3 (3e-3 is worse here), along a cosine, clipped to 1."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewind"
    folder = next(cache.glob(f"spoken-digits-*-{option(command, '--strings')}-*[0-9]"))

    def read(split):
        for index in sorted((folder / split).rglob("*.trans.txt")):
            for line in index.read_text().splitlines():
                name, *words = line.split()
                yield log_mels(index.parent / f"{name}.wav"), words
    heard, test = list(read("train")), list(read("test"))
    words = [""] + sorted({word for _, said in heard for word in said})
    frames = torch.cat([x for x, _ in heard])
    mean, std = frames.mean(0), frames.std(0)
    model = Recogniser(len(words), report["channels"], report["hidden"])

    def loss_of(chosen):
        sounds = nn.utils.rnn.pad_sequence([(heard[i][0] - mean) / std for i in chosen], batch_first=True)
        said = [torch.tensor([words.index(word) for word in heard[i][1]]) for i in chosen]
        sizes = torch.tensor([(len(heard[i][0]) + 3) // 4 for i in chosen])
        return F.ctc_loss(model(sounds).transpose(0, 1), torch.cat(said), sizes, torch.tensor(list(map(len, said))))
    train(model, decayed(model, 1e-3), report["steps"], epochs(len(heard), report["batch"]), loss_of, cosine, clip=1)
    wrong = 0
    with torch.no_grad():
        for x, said in test:
            best = model(((x - mean) / std)[None])[0].argmax(1).unique_consecutive()
            wrong += word_errors(said, [words[i] for i in best if i])
    return 100 * (1 - wrong / sum(len(said) for _, said in test))


def main():
    tasks = {name[4:]: task for name, task in globals().items() if name.startswith("run_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tasks)
    parser.add_argument("--command", required=True, type=json.loads)
    parser.add_argument("--report", required=True, type=Path)
    parser.add_argument("--result", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    points = tasks[options.task](options.command, json.loads(options.report.read_text()))
    options.result.write_text(json.dumps({"points": points}))


if __name__ == "__main__":
    main()
