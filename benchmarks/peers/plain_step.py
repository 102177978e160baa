#!/usr/bin/env python3
"""Measures the peak memory of one f32 training step in PyTorch on the CPU, for the models of `bench plain_step`.

Gradients are set to none after every update, images are channels_last. The peak is the most bytes that
PyTorch's own allocator held at once since before the model was made, by its profiler; memory that libraries
allocate by themselves does not count. Prints one line per model: NAME MIB.
Needs PyTorch (Debian: python3-torch). Usage: plain_step.py [MODEL...]"""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile


class Block(nn.Module):
    """Two 3x3 convolutions with group norm."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(8, outputs)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    """Four levels, upsampling by 1x1 convolutions and pixel shuffles, skips joined by cat."""

    def __init__(self, base=24, levels=4, classes=5):
        super().__init__()
        widths = [base << i for i in range(levels)]
        self.down = nn.ModuleList(
            Block(3 if i == 0 else widths[i - 1], w, 1 if i == 0 else 2) for i, w in enumerate(widths))
        self.up = nn.ModuleList(nn.Conv2d(widths[i + 1], 4 * widths[i], 1) for i in range(levels - 1))
        self.join = nn.ModuleList(Block(2 * w, w, 1) for w in widths[:-1])
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        skips.pop()
        for i in reversed(range(len(self.up))):
            skip = skips.pop()
            x = F.pixel_shuffle(self.up[i](x), 2)[:, :, :skip.shape[2], :skip.shape[3]]
            x = self.join[i](torch.cat([x, skip], 1))
        return self.head(x)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.shortcut = None
        if stride != 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False),
                                          nn.BatchNorm2d(4 * width))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            width = 64 << stage
            layers.append(Bottleneck(inputs, width, 2 if block == 0 and stage > 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Layer(nn.Module):
    def __init__(self, hidden, heads, pre_norm, dropout):
        super().__init__()
        self.heads, self.pre_norm, self.dropout = heads, pre_norm, dropout
        self.query, self.key, self.value, self.dense = (nn.Linear(hidden, hidden) for _ in range(4))
        self.inner, self.outer = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def attend(self, x):
        def split(t):
            return t.view(*t.shape[:2], self.heads, -1).transpose(1, 2)

        y = F.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)),
                                           is_causal=self.pre_norm)
        return F.dropout(self.dense(y.transpose(1, 2).flatten(2)), self.dropout)

    def feed_forward(self, x):
        return F.dropout(self.outer(F.gelu(self.inner(x))), self.dropout)

    def forward(self, x):
        if self.pre_norm:
            x = x + self.attend(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.feed_forward(x))


class Decoder(nn.Module):
    """Causal layers between an embedding and the logits that share its table."""

    def __init__(self, vocabulary=8000, hidden=256, layers=6, length=128, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, True, 0.0) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


class Bert(nn.Module):
    """BERT-base with its heads for masked tokens and next sentences, all positions predicted."""

    def __init__(self, vocabulary=30522, hidden=768, layers=12, positions=512, heads=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.types, self.norm = nn.Embedding(2, hidden), nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, False, 0.1) for _ in range(layers))
        self.pooler, self.next = nn.Linear(hidden, hidden), nn.Linear(hidden, 2)
        self.transform, self.head_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, ids, types, positions):
        x = self.tokens(ids) + self.types(types) + self.places.weight[:ids.shape[1]]
        x = F.dropout(self.norm(x), 0.1)
        for layer in self.layers:
            x = layer(x)
        chosen = x.flatten(0, 1)[positions]
        chosen = self.head_norm(F.gelu(self.transform(chosen)))
        return F.linear(chosen, self.tokens.weight, self.bias), self.next(torch.tanh(self.pooler(x[:, 0])))


def images(n, height, width):
    return torch.randn(n, 3, height, width).to(memory_format=torch.channels_last)


def unet():
    model = UNet().to(memory_format=torch.channels_last)
    x, y = images(2, 101, 77), torch.randint(5, (2, 101, 77))
    return model, torch.optim.Adam(model.parameters()), lambda: F.cross_entropy(model(x), y)


def resnet():
    model = resnet50().to(memory_format=torch.channels_last)
    x, y = images(8, 224, 224), torch.randint(1000, (8,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, lambda: F.cross_entropy(model(x), y)


def decoder():
    model = Decoder()
    x, y = torch.randint(8000, (4, 128)), torch.randint(8000, (4, 128))
    return model, torch.optim.AdamW(model.parameters()), lambda: F.cross_entropy(
        model(x).flatten(0, 1), y.flatten())


def bert():
    model = Bert()
    ids, types = torch.randint(30522, (4, 128)), torch.zeros(4, 128, dtype=torch.int64)
    positions = torch.cat([torch.arange(20) + 128 * i for i in range(4)])
    targets, following = torch.randint(30522, (80,)), torch.randint(2, (4,))

    def loss():
        logits, pairs = model(ids, types, positions)
        return F.cross_entropy(logits, targets) + F.cross_entropy(pairs, following)

    return model, torch.optim.AdamW(model.parameters()), loss


def most_allocated(body):
    """Returns the most bytes that PyTorch's allocator held at once while body() ran, by its profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        body()
    held = most = 0
    changes = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(changes, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def two_steps(make):
    model, optimizer, loss = make()
    for _ in range(2):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


MODELS = {"unet": unet, "resnet50": resnet, "bert-base": bert, "decoder": decoder}

if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        print(f"{name} {most_allocated(lambda: two_steps(MODELS[name])) / 2**20:.1f}", flush=True)
