#!/usr/bin/env python3
"""Writes resnet.inc: what PyTorch computes for ResNet-18 and a narrow ResNet-50, in f64.

Needs PyTorch (Debian: python3-torch). The models have torchvision's structure and names. Weights and
images come from hashed.py.
Of some sets of images it takes the one that stays farthest from the kinks of the ReLUs: where a value
within rounding of zero changes sides, gradients jump, and PyTorch's own f32 is off by 1e-3.
Usage: make_resnet_goldens.py > resnet.inc"""

import numpy as np
import torch
from torch import nn

from hashed import hashed

BATCH, SIZE, CLASSES, SAMPLES, TRIES = 4, 48, 10, 6, 40


def initial(name, shape):
    values = hashed(name, shape)
    if len(shape) > 1:
        return values * np.float32((6 / np.prod(shape[1:])) ** 0.5)
    center = 1 if name.endswith(("weight", "running_var")) else 0
    values = np.float32(center) + np.float32(0.25) * values
    # Weak branches keep a deep network well-conditioned.
    return values * np.float32(0.25) if name.endswith(("bn2.weight", "bn3.weight")) else values


def conv_norm(inner, outer, kernel, stride):
    return (nn.Conv2d(inner, outer, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outer))


margins = []  # of each ReLU: the value nearest to zero, relative to their mean size


def relu(x):
    margins.append((x.abs().min() / x.abs().mean()).item())
    return torch.relu(x)


class Block(nn.Module):
    def __init__(self, inner, width, stride, bottleneck):
        super().__init__()
        outer = width * 4 if bottleneck else width
        plan = [(inner, width, 3, stride), (width, outer, 3, 1)]
        if bottleneck:
            plan = [(inner, width, 1, 1), (width, width, 3, stride), (width, outer, 1, 1)]
        self.count = len(plan)
        for i, sizes in enumerate(plan, 1):
            conv, norm = conv_norm(*sizes)
            self.add_module(f"conv{i}", conv)
            self.add_module(f"bn{i}", norm)
        self.downsample = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(*conv_norm(inner, outer, 1, stride))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = relu(y)
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, depths, width, bottleneck):
        super().__init__()
        self.conv1, self.bn1 = conv_norm(3, width, 7, 2)
        channels = width
        for s, depth in enumerate(depths):
            blocks = []
            for b in range(depth):
                blocks.append(Block(channels, width, 2 if b == 0 and s > 0 else 1, bottleneck))
                channels = width * 4 if bottleneck else width
            width *= 2
            self.add_module(f"layer{s + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = nn.functional.max_pool2d(relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def numbers(values):
    return "{" + ", ".join(f"{v:.9g}" for v in np.asarray(values).ravel()) + "}"


def rows(tensors):
    for name, tensor in tensors:
        flat = tensor.detach().numpy().ravel()
        picked = [i * flat.size // SAMPLES for i in range(SAMPLES)]
        yield f'        {{"{name}", {numbers(tensor.shape)}, {np.linalg.norm(flat):.9g},\n' \
              f"         {numbers(flat[picked])}}},"


def images(number):
    values = hashed(f"images{number}", (BATCH, SIZE, SIZE, 3))
    return torch.from_numpy(values).double().permute(0, 3, 1, 2)


def margin(model, number):
    margins.clear()
    with torch.no_grad():
        model(images(number))
    return min(margins)


def golden(depth, depths, width, bottleneck):
    model = ResNet(depths, width, bottleneck).double()
    start = {}
    for name, tensor in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            start[name] = torch.from_numpy(initial(name, tuple(tensor.shape)))
    model.load_state_dict(start, strict=False)
    number = max(range(TRIES), key=lambda i: margin(model, i))
    model.load_state_dict(start, strict=False)  # the tries moved the running statistics

    labels = torch.tensor([3, 1, 4, 5])
    model.eval()
    evaluated = model(images(number))
    model.train()
    logits = model(images(number))
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    buffers = [(n, b) for n, b in model.named_buffers() if not n.endswith("num_batches_tracked")]
    print(f"const Golden resnet{depth} = {{")
    print(f'    .depth = {depth},\n    .width = {width},\n    .images = "images{number}",')
    print(f"    .loss = {loss.item():.9g},\n    .logits = {numbers(logits.detach())},")
    print(f"    .evaluated = {numbers(evaluated.detach())},")
    print("    .gradients = {", *rows((n, p.grad) for n, p in model.named_parameters()), sep="\n")
    print("    },\n    .buffers = {", *rows(buffers), sep="\n")
    print("    },\n};")


torch.set_num_threads(2)
print("// Made by make_resnet_goldens.py; do not edit. Rows: name, shape, norm, samples.")
golden(18, (2, 2, 2, 2), 64, False)
golden(50, (3, 4, 6, 3), 16, True)
