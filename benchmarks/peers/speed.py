#!/usr/bin/env python3
"""Runs the cases of benchmarks/speed in PyTorch, as a server: a line on standard input names a case, and a line answers
with the seconds of a run, or with "skip" and the reason. Images are channels_last; --dtype f16 and bf16 make tensors, and autocast
training steps, of these.
Needs PyTorch (Debian: python3-torch). Usage: speed.py [--device cpu|cuda] [--dtype f32|f16|bf16] [--compile]
[--round SECONDS] [--threads N]"""

import argparse
import re
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
import plain_step  # noqa: E402: the models

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class BasicBlock(nn.Module):
    """A block of a ResNet for CIFAR. Where the shape changes, the shortcut is padded with zero channels."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.stride, self.more = stride, width - inputs

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.more:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return F.relu(y + x)


def resnet20():
    layers, inputs = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for width in (16, 32, 64):
        for block in range(3):
            layers.append(BasicBlock(inputs, width, 2 if block == 0 and width > 16 else 1))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Cases:
    def __init__(self, device, dtype, compiled):
        self.device, self.dtype, self.compiled = device, dtype, compiled

    # ---- values and forms of work

    def values(self, *shape, dtype=None, trained=False):
        x = (torch.rand(shape, device=self.device) * 2 - 1).to(dtype or self.dtype)
        return x.requires_grad_(trained)

    def images(self, n, c, h, w, trained=False):
        x = self.values(n, c, h, w).to(memory_format=torch.channels_last)
        return x.detach().requires_grad_(trained)

    def indices(self, n, *shape):
        return torch.randint(n, shape, device=self.device)

    def forward(self, body):
        body = torch.compile(body) if self.compiled else body

        def run():
            with torch.no_grad():
                body()
        return run

    def both(self, body, *leaves):
        body = torch.compile(body) if self.compiled else body
        seed = torch.rand_like(body())

        def run():
            body().backward(seed)
            for leaf in leaves:
                leaf.grad = None
        return run

    def either(self, how, body, *leaves):
        return self.both(body, *leaves) if how == "both" else self.forward(body)

    # ---- families, by the parts of the name

    def gemm(self, what):
        m, n, k, layout = re.fullmatch(r"(\d+)x(\d+)x(\d+)-(..)", what).groups()
        m, n, k = int(m), int(n), int(k)
        a = self.values(m, k) if layout[0] == "n" else self.values(k, m).T
        b = self.values(k, n) if layout[1] == "n" else self.values(n, k).T
        return self.forward(lambda: a @ b)

    def conv(self, what):
        numbers = re.fullmatch(r"(\d+)x(\d+)x\d+x(\d+)-(\d+)-k(\d+)s(\d+)-(\w+)", what).groups()
        batch, size, inputs, outputs, kernel, stride = (int(x) for x in numbers[:6])
        trained = numbers[6] == "both"
        x = self.images(batch, inputs, size, size, trained)
        w = self.images(outputs, inputs, kernel, kernel, trained)
        return self.either(numbers[6], lambda: F.conv2d(x, w, None, stride, kernel // 2), x, w)

    def attention(self, what):
        *shape, how = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)-(\w+)", what).groups()
        q, k, v = (self.values(*map(int, shape), trained=how == "both") for _ in range(3))
        return self.either(how, lambda: F.scaled_dot_product_attention(q, k, v), q, k, v)

    def copy(self, _):
        x = self.values(1 << 23)
        return self.forward(x.clone)

    def elementwise(self, what):
        op, _, how = what.partition("-")
        x = self.values(1 << 23, trained=how == "both")
        y = self.values(1 << 23)
        body = {"add": lambda: x + y, "gelu": lambda: F.gelu(x), "relu": lambda: F.relu(x),
                "dropout": lambda: F.dropout(x, 0.1)}[op]
        return self.either(how, body, x)

    def layout(self, what):
        if what == "transpose-2048x2048":
            x, axes = self.values(2048, 2048), (0, 1)
        else:
            x, axes = self.values(16, 128, 4, 64), (1, 2)
        return self.forward(lambda: x.transpose(*axes).contiguous())

    def reduction(self, what):
        x = {"all": lambda: self.values(1 << 23), "short-rows-262144x16": lambda: self.values(262144, 16)}.get(
            what, lambda: self.values(8192, 512))()
        axis = 0 if what.startswith("columns") else None if what == "all" else 1
        return self.forward(lambda: x.sum(axis))

    def softmax(self, _):
        x = self.values(8192, 512, trained=True)
        return self.both(lambda: F.softmax(x, -1), x)

    def norm(self, what):
        if what.startswith("layer"):
            x = self.values(2048, 768, trained=True)
            w, b = (self.values(768, dtype=torch.float32, trained=True) for _ in range(2))
            if self.dtype != torch.float32:
                w, b = (t.detach().to(self.dtype).requires_grad_() for t in (w, b))
            return self.both(lambda: F.layer_norm(x, (768,), w, b), x, w, b)
        x = self.images(64, 16, 32, 32, True)
        w, b = (self.values(16, dtype=torch.float32, trained=True) for _ in range(2))
        return self.both(lambda: F.batch_norm(x, None, None, w, b, True), x, w, b)

    def embedding(self, what):
        tokens, vocabulary, width = map(int, re.fullmatch(r"(\d+)-of-(\d+)x(\d+)-both", what).groups())
        table = self.values(vocabulary, width, dtype=torch.float32, trained=True)
        index = self.indices(vocabulary, tokens)
        return self.both(lambda: F.embedding(index, table), table)

    def optimizer(self, what):
        shapes = [(768, 768), (768, 384), (768,), (384,)] * 12
        parameters = [self.values(*s, dtype=torch.float32, trained=True) for s in shapes]
        for p in parameters:
            p.grad = torch.rand_like(p)
        rules = {"sgd": lambda: torch.optim.SGD(parameters, 1e-4, 0.9), "adam": lambda: torch.optim.Adam(parameters, 1e-4),
                 "adamw": lambda: torch.optim.AdamW(parameters, 1e-4)}
        return rules[what]().step

    # ---- a language model, forward and backward

    def decoder(self, _):
        model = SmolLM().to(self.device, self.dtype)
        ids, targets = self.indices(49152, 1, 128), self.indices(49152, 128)
        leaves = list(model.parameters())
        return self.both(lambda: F.cross_entropy(model(ids), targets), *leaves)

    # ---- training steps

    def train(self, model, rule, loss, micro_batches=1):
        model = model.to(self.device)
        optimizer, count = rule(model.parameters()), 0
        scaler = torch.amp.GradScaler(self.device, enabled=self.dtype == torch.float16)
        compiled = torch.compile(model) if self.compiled else model

        def step():
            nonlocal count
            with torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32):
                value = loss(compiled) / micro_batches
            scaler.scale(value).backward()
            count += 1
            if count % micro_batches == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
        return step

    def step(self, what):
        if what.startswith("mlp"):
            batch = 100 if what == "mlp-100" else 1
            model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(),
                                  nn.Dropout(0.2), nn.Linear(512, 10))
            x, y = self.values(batch, 784, dtype=torch.float32), self.indices(10, batch)
            return self.train(model, torch.optim.Adam, lambda m: F.cross_entropy(m(x), y),
                              100 if what == "mlp-1-of-100" else 1)
        if what.startswith("resnet"):
            deep = what.startswith("resnet50-")
            model = plain_step.resnet50() if deep else resnet20()
            model = model.to(memory_format=torch.channels_last)
            batch, size, classes = (int(what.removeprefix("resnet50-")), 224, 1000) if deep else (64, 32, 10)
            x = self.values(batch, 3, size, size, dtype=torch.float32).to(memory_format=torch.channels_last)
            y = self.indices(classes, batch)
            return self.train(model, lambda p: torch.optim.SGD(p, 0.01, 0.9), lambda m: F.cross_entropy(m(x), y))
        if what == "bert-base-32x128":
            return self.bert(32, 128, hidden=768, layers=12, heads=12)
        return self.bert(16, 128, hidden=256, layers=4, heads=4)

    def bert(self, batch, length, **sizes):
        model = plain_step.Bert(**sizes)
        ids, types = self.indices(30522, batch, length), self.indices(1, batch, length)
        positions, targets = self.indices(batch * length, 20 * batch), self.indices(30522, 20 * batch)
        following = self.indices(2, batch)

        def loss(m):
            logits, pairs = m(ids, types, positions)
            return F.cross_entropy(logits, targets) + F.cross_entropy(pairs, following)
        return self.train(model, lambda p: torch.optim.AdamW(p, 1e-4), loss)


class SmolLMLayer(nn.Module):
    def __init__(self, hidden=576, heads=9, key_heads=3, inner=1536):
        super().__init__()
        self.norm, self.second_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        sizes = {"query": (hidden, heads * 64), "key": (hidden, key_heads * 64), "value": (hidden, key_heads * 64),
                 "output": (heads * 64, hidden), "gate": (hidden, inner), "up": (hidden, inner), "down": (inner, hidden)}
        for name, size in sizes.items():
            setattr(self, name, nn.Linear(*size, bias=False))

    def forward(self, x, cos, sin):
        def split(y):
            return y.view(1, x.shape[1], -1, 64).transpose(1, 2)

        def rotary(y):
            left, right = y.chunk(2, -1)
            return y * cos + torch.cat((-right, left), -1) * sin
        h = self.norm(x)
        q, k, v = rotary(split(self.query(h))), rotary(split(self.key(h))), split(self.value(h))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        h = self.second_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class SmolLM(nn.Module):
    """A language model of the sizes of SmolLM2-135M."""

    def __init__(self, vocabulary=49152, hidden=576, layers=30):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(vocabulary, hidden), nn.RMSNorm(hidden)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.layers = nn.ModuleList(SmolLMLayer() for _ in range(layers))

    def forward(self, ids):
        x = self.tokens(ids)
        turns = torch.outer(torch.arange(ids.shape[1]), 10000.0 ** (-torch.arange(0, 64, 2) / 64)).repeat(1, 2)
        cos, sin = turns.cos().to(x), turns.sin().to(x)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.tokens.weight).flatten(0, 1)


class Measured:
    """A piece of work that has run often enough to be warm."""

    def __init__(self, work, device, seconds):
        self.work, self.device, self.runs = work, device, 1
        for _ in range(2):
            took = self.took()
        while took < seconds / 4 and self.runs < 1 << 20:
            self.runs = max(self.runs + 1, int(self.runs * min(8, seconds / (2 * took))))
            took = self.took()

    def took(self):
        start = time.perf_counter()
        for _ in range(self.runs):
            self.work()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="f32", choices=list(DTYPES))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--round", type=float, default=0.2)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    cases, last, work = Cases(options.device, DTYPES[options.dtype], options.compile), None, None
    for line in sys.stdin:
        name = line.strip()
        try:
            if name != last:
                last, work = name, None
                family, _, what = name.partition("/")
                work = Measured(getattr(cases, family)(what), options.device, options.round)
            if work is None:
                raise RuntimeError("it could not be prepared")
            print(f"{work.took() / work.runs:.9f}", flush=True)
        except Exception as error:  # whatever PyTorch lacks, the other cases go on
            print("skip", str(error).splitlines()[0] if str(error) else type(error).__name__, flush=True)


if __name__ == "__main__":
    main()
