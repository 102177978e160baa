#!/usr/bin/env python3
"""Writes speech.inc: log-mel features, and losses and gradients of small recognisers, by PyTorch in double
precision. The transducer's loss is summed over its lattice here; PyTorch differentiates it.

Needs PyTorch (Debian: python3-torch). Inputs and parameters come from a hash that tests/fixtures/hashed.h repeats.
Usage: make_speech_goldens.py > speech.inc"""

import numpy as np
import torch
import torch.nn.functional as F
from hashed import hashed
from torch import nn

MELS, CHANNELS, KERNEL, HIDDEN, CLASSES = 10, 8, 5, 12, 7
FRAMES, TARGETS, COUNTS = [23, 17, 12], [[1, 2, 2], [3, 6, 0], [4, 0, 0]], [3, 2, 1]


def values(name, shape, scale=1.0, center=0.0):
    return torch.from_numpy(center + np.float64(scale) * hashed(name, shape).astype(np.float64))


def emit(name, tensor):
    flat = tensor.detach().reshape(-1).double()
    count = min(24, flat.numel())
    samples = [flat[i * flat.numel() // count].item() for i in range(count)]
    print('    {"%s", %d, %.9g, {%s}},' % (name, flat.numel(), flat.norm().item(), ", ".join("%.9g" % v for v in samples)))


def filter_bank(mels, window, rate, low, high):
    """Returns triangles of height 1 between points evenly spaced on HTK's scale, [bins, mels]."""
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    points = 700 * (10 ** (np.linspace(mel(low), mel(high), mels + 2) / 2595) - 1)
    hz = np.arange(window // 2 + 1) * rate / window
    up = (hz[:, None] - points[:-2]) / (points[1:-1] - points[:-2])
    down = (points[2:] - hz[:, None]) / (points[2:] - points[1:-1])
    return torch.from_numpy(np.maximum(0, np.minimum(up, down)))


def log_mel(sound, mels, window=400, hop=160, rate=16000, low=20, high=8000, floor=1e-5):
    spectrum = torch.stft(sound, window, hop, window, torch.hann_window(window, dtype=torch.float64),
                          center=False, return_complex=True)
    power = (spectrum.abs() ** 2).transpose(1, 2)
    return torch.log(power @ filter_bank(mels, window, rate, low, high) + floor)


class CausalConv(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(inputs, CHANNELS, KERNEL, 2), nn.LayerNorm(CHANNELS)

    def forward(self, x):  # [N, T, C]
        return torch.relu(self.norm(self.conv(F.pad(x.transpose(1, 2), (KERNEL - 1, 0))).transpose(1, 2)))


class Layer(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.lstm = nn.LSTM(inputs, HIDDEN)

    def forward(self, x):
        return self.lstm(x)[0]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = CausalConv(MELS), CausalConv(CHANNELS)
        self.layer1, self.layer2, self.norm = Layer(CHANNELS), Layer(HIDDEN), nn.LayerNorm(HIDDEN)

    def forward(self, x):
        return self.norm(self.layer2(self.layer1(self.conv2(self.conv1(x)).transpose(0, 1))))


class Transducer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.predictor = nn.Embedding(CLASSES, HIDDEN), nn.LSTM(HIDDEN, HIDDEN)
        self.encoder_out, self.predictor_out = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.joint = nn.Linear(HIDDEN, CLASSES)

    def loss(self, encoded, targets, lengths, counts):
        said = self.embedding(F.pad(targets, (1, 0)).T)
        predicted = self.predictor_out(self.predictor(said)[0].transpose(0, 1))
        joined = torch.tanh(self.encoder_out(encoded.transpose(0, 1))[:, :, None] + predicted[:, None])
        x = torch.log_softmax(self.joint(joined), -1)  # [N, T, U + 1, C]
        losses = []
        for n in range(len(counts)):
            alpha = {}
            for t in range(lengths[n]):
                for u in range(counts[n] + 1):
                    ways = [alpha[t - 1, u] + x[n, t - 1, u, 0]] if t else []
                    ways += [alpha[t, u - 1] + x[n, t, u - 1, targets[n, u - 1]]] if u else []
                    alpha[t, u] = torch.logsumexp(torch.stack(ways), 0) if ways else x.new_zeros(())
            last = (lengths[n] - 1, counts[n])
            losses.append(-(alpha[last] + x[n, last[0], last[1], 0]))
        return torch.stack(losses).mean()


class Recogniser(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.encoder = Encoder()
        if loss == "ctc":
            self.output = nn.Linear(HIDDEN, CLASSES)
        else:
            self.transducer = Transducer()


def model(loss):
    net = Recogniser(loss).double()
    for name, p in net.named_parameters():
        channels_last = ".conv.weight" in name
        shape = [p.shape[0], p.shape[2], p.shape[1]] if channels_last else list(p.shape)
        v = values(name, shape, 0.25, 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0)
        p.data = v.permute(0, 2, 1).contiguous() if channels_last else v
    encoded = net.encoder(values("features", (3, max(FRAMES), MELS)))
    targets, counts = torch.tensor(TARGETS), torch.tensor(COUNTS)
    lengths = [(f + 3) // 4 for f in FRAMES]
    if loss == "ctc":
        result = F.ctc_loss(torch.log_softmax(net.output(encoded), -1), targets, torch.tensor(lengths), counts)
    else:
        result = net.transducer.loss(encoded, targets, lengths, COUNTS)
    result.backward()
    print("const std::vector<GoldenRow> %s_outputs = {" % loss)
    emit("encoded", encoded)
    emit("loss", result)
    print("};\nconst std::vector<GoldenRow> %s_gradients = {" % loss)
    for name, p in net.named_parameters():
        emit(name, p.grad.permute(0, 2, 1) if ".conv.weight" in name else p.grad)
    print("};")


print("// Made by make_speech_goldens.py; do not edit. Rows: name, size, norm, samples.")
sound = values("sound", (2, 2000), 0.5)
print("const std::vector<GoldenRow> features = {")
emit("usual", log_mel(sound, 40))
emit("others", log_mel(sound, 13, 256, 100, 8000, 0, 3500, 1e-3))
print("};")
model("ctc")
model("rnnt")
