#!/usr/bin/env python3
"""Does the same as `apps/resnet --data DIR` in PyTorch on the CPU: ResNet-20 on CIFAR-10's binary files by the same recipe.

SGD with Nesterov momentum, decay of matrices only, a warm-up over a tenth of the updates and a cosine to zero; images
padded with black by 4, cropped and mirrored at random, the last batch left out. Writes a report with the keys of the
program's. Needs PyTorch (Debian: python3-torch).
Usage: resnet_cifar.py --data DIR --report FILE [--batch 128] [--epochs 30] [--lr 0.1] [--seed 1]"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from speed import resnet20  # noqa: E402: the model

DECAY = 1e-4


def records(folder, names):
    """Returns (images [N, 3, 32, 32] in [0, 1], labels) of the files that exist."""
    files = [path for path in (Path(folder) / name for name in names) if path.exists()]
    data = torch.cat([torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) for path in files])
    data = data.view(-1, 1 + 3 * 32 * 32)
    return data[:, 1:].reshape(-1, 3, 32, 32).float() / 255, data[:, 0].long()


def augmented(images):
    """Mirrors each image or not, and moves it by up to 4 pixels."""
    padded = F.pad(images, (4, 4, 4, 4))
    mirrored = torch.rand(len(images)) < 0.5
    padded[mirrored] = padded[mirrored].flip(3)
    rows, columns = (torch.randint(9, (len(images), 1)) + torch.arange(32) for _ in range(2))
    return padded[torch.arange(len(images))[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    images, labels = records(options.data, [f"data_batch_{i}.bin" for i in range(1, 6)])
    test_images, test_labels = records(options.data, ["test_batch.bin"])
    mean, std = images.mean((0, 2, 3)).view(3, 1, 1), images.std((0, 2, 3)).view(3, 1, 1)

    model = resnet20().to(memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() <= 1]}]
    optimizer = torch.optim.SGD(groups, lr=options.lr, momentum=0.9, nesterov=True)
    total = options.epochs * (len(images) // options.batch)
    warmup = total // 10

    def factor(done):
        if done < warmup:
            return (done + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (done - warmup) / (total - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    history, losses, done, began = [], [], 0, time.time()
    for _ in range(options.epochs):
        order = torch.randperm(len(images))
        for first in range(0, len(images) - options.batch + 1, options.batch):
            chosen = order[first:first + options.batch]
            batch = ((augmented(images[chosen]) - mean) / std).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(model(batch), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            done += 1
            if done % max(1, total // 10) == 0 or done == total:
                history.append({"step": done, "loss": sum(losses) / len(losses)})
                losses = []
    seconds = time.time() - began
    model.eval()
    with torch.no_grad():
        hits = sum((model((x - mean) / std).argmax(1) == y).sum().item()
                   for x, y in zip(test_images.split(250), test_labels.split(250)))
    Path(options.report).write_text(json.dumps({
        "history": history, "test_accuracy": hits / len(test_labels), "train_seconds": seconds,
        "step_seconds": seconds / total, "device": {"name": f"PyTorch {torch.__version__}"}}))


if __name__ == "__main__":
    main()
