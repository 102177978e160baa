"""A classifier on your own table: a CSV file whose last column is the class (a number from 0), or made data.

    python classifier.py [FILE.csv]
"""
import sys

import numpy as np

import rewind as rw
from rewind import nn


def read(path):
    table = np.genfromtxt(path, delimiter=",", skip_header=1)
    return table[:, :-1].astype(np.float32), table[:, -1].astype(np.int64)


def made(n=2000):
    """Points of two spirals."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 2, n)
    turn = random.random(n) * 3 * np.pi
    angle = turn + np.pi * labels
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 10 + random.normal(0, 0.01, (n, 2))
    return points.astype(np.float32), labels


class Net(nn.Module):
    def __init__(self, features, classes, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.layers(x))


rw.manual_seed(1)
x, labels = read(sys.argv[1]) if len(sys.argv) > 1 else made()
x = (x - x.mean(0)) / x.std(0)
held_out = len(x) // 5
model = Net(x.shape[1], int(labels.max()) + 1)
optimizer = rw.optim.AdamW(model.parameters(), lr=0.01)
batches = rw.data.DataLoader((x[held_out:], labels[held_out:]), batch_size=128, shuffle=True, drop_last=True)
epochs = 30
optimizer.set_schedule(rw.optim.Schedule.cosine(epochs * len(batches)))
for epoch in range(epochs):
    for points, classes in batches:
        loss = rw.cross_entropy(model(points), classes)
        optimizer.zero_grad()
        optimizer.backward(loss)
        optimizer.step()
    if epoch % 10 == 9:
        with rw.no_grad():
            right = (model(rw.tensor(x[:held_out])).argmax(-1) == labels[:held_out]).float().mean().item()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {right:.1%} of the held-out rows are right")
