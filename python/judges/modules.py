"""Holds modules against torch.nn's of the same weights: results, gradients of inputs and parameters, names of the state.

    python3 modules.py [--only PATTERN] [--write FILE.md]

Images are channels last in Rewind and channels second in PyTorch; nothing else is rearranged. Needs PyTorch.
"""
import fnmatch
import sys
import warnings

import numpy as np
import torch
from judging import options_of, reason
from torch import nn

import rewind as rw

BAR = 60  # so many rows must hold


class Row:
    """A module of both; inputs are images (`image`: channels second for PyTorch), whole numbers below `classes`, or floats; `more` are ours."""

    def __init__(self, name, ours, theirs, *shapes, image=False, classes=0, train=True, tolerance=1e-4, more=None):
        self.name, self.ours, self.theirs, self.shapes = name, ours, theirs, shapes
        self.image, self.classes, self.train, self.tolerance, self.more = image, classes, train, tolerance, more or {}


def rows():
    r = rw.nn
    t = {"d_model": 16, "nhead": 4, "dim_feedforward": 24, "dropout": 0.0}
    yield Row("Linear", lambda: r.Linear(5, 7), lambda: nn.Linear(5, 7), (3, 5))
    yield Row("Linear, no bias", lambda: r.Linear(5, 7, bias=False), lambda: nn.Linear(5, 7, bias=False), (2, 3, 5))
    for n in (1, 2, 3):
        ours, theirs, size = getattr(r, f"Conv{n}d"), getattr(nn, f"Conv{n}d"), (9, 8, 7)[:n]
        yield Row(f"Conv{n}d", lambda c=ours: c(4, 6, 3), lambda c=theirs: c(4, 6, 3), (2, 4, *size), image=True)
        yield Row(f"Conv{n}d, stride, padding, groups", lambda c=ours: c(4, 6, 3, stride=2, padding=1, groups=2),
                  lambda c=theirs: c(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, *size), image=True)
        yield Row(f"Conv{n}d, dilation, no bias", lambda c=ours: c(4, 6, 2, dilation=2, bias=False),
                  lambda c=theirs: c(4, 6, 2, dilation=2, bias=False), (2, 4, *size), image=True)
    yield Row("Conv2d, reflect", lambda: r.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
              lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 6, 5), image=True)
    yield Row("Conv2d, circular", lambda: r.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
              lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 6, 5), image=True)
    for n in (1, 2):
        ours, theirs, size = getattr(r, f"ConvTranspose{n}d"), getattr(nn, f"ConvTranspose{n}d"), (6, 5)[:n]
        yield Row(f"ConvTranspose{n}d", lambda c=ours: c(4, 6, 3), lambda c=theirs: c(4, 6, 3), (2, 4, *size), image=True)
        yield Row(f"ConvTranspose{n}d, stride", lambda c=ours: c(4, 6, 3, stride=2, padding=1, output_padding=1),
                  lambda c=theirs: c(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, *size), image=True)
    for kind in ("Max", "Avg"):
        for n in (1, 2):
            ours, theirs, size = getattr(r, f"{kind}Pool{n}d"), getattr(nn, f"{kind}Pool{n}d"), (9, 8)[:n]
            yield Row(f"{kind}Pool{n}d", lambda c=ours: c(2), lambda c=theirs: c(2), (2, 3, *size), image=True)
            yield Row(f"{kind}Pool{n}d, padding", lambda c=ours: c(3, 2, 1), lambda c=theirs: c(3, 2, 1), (2, 3, *size), image=True)
            ours, theirs = getattr(r, f"Adaptive{kind}Pool{n}d"), getattr(nn, f"Adaptive{kind}Pool{n}d")
            yield Row(f"Adaptive{kind}Pool{n}d", lambda c=ours: c(3), lambda c=theirs: c(3), (2, 3, *size), image=True)
    yield Row("BatchNorm2d", lambda: r.BatchNorm2d(5), lambda: nn.BatchNorm2d(5), (4, 5, 3, 2), image=True)
    yield Row("BatchNorm2d, evaluated", lambda: r.BatchNorm2d(5), lambda: nn.BatchNorm2d(5), (4, 5, 3, 2), image=True, train=False)
    yield Row("InstanceNorm2d", lambda: r.InstanceNorm2d(5), lambda: nn.InstanceNorm2d(5), (4, 5, 3, 2), image=True)
    yield Row("InstanceNorm2d, affine", lambda: r.InstanceNorm2d(5, affine=True), lambda: nn.InstanceNorm2d(5, affine=True),
              (4, 5, 3, 2), image=True)
    yield Row("GroupNorm", lambda: r.GroupNorm(2, 6), lambda: nn.GroupNorm(2, 6), (4, 6, 3, 2), image=True)
    yield Row("LayerNorm", lambda: r.LayerNorm(9), lambda: nn.LayerNorm(9), (4, 3, 9))
    yield Row("LayerNorm, no bias", lambda: r.LayerNorm(9, bias=False), lambda: nn.LayerNorm(9, bias=False), (4, 9))
    yield Row("RMSNorm", lambda: r.RMSNorm(9), lambda: nn.RMSNorm(9, eps=1e-6), (4, 3, 9))
    yield Row("Embedding", lambda: r.Embedding(11, 5), lambda: nn.Embedding(11, 5), (3, 4), classes=11)
    yield Row("Embedding, padding", lambda: r.Embedding(11, 5, padding_index=2), lambda: nn.Embedding(11, 5, padding_idx=2), (3, 4),
              classes=11)
    for name in ("LSTM", "GRU"):
        ours, theirs = getattr(r, name), getattr(nn, name)
        yield Row(name, lambda c=ours: c(5, 6), lambda c=theirs: c(5, 6), (7, 3, 5))
        yield Row(f"{name}, two layers in both directions", lambda c=ours: c(5, 6, layers=2, bidirectional=True),
                  lambda c=theirs: c(5, 6, 2, bidirectional=True), (7, 3, 5))
        yield Row(f"{name}, batch first, no bias", lambda c=ours: c(5, 6, batch_first=True, bias=False),
                  lambda c=theirs: c(5, 6, batch_first=True, bias=False), (3, 7, 5))
    for name in ("ELU", "GELU", "GLU", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU", "LogSigmoid", "Mish", "PReLU",
                 "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softsign", "Tanh"):
        yield Row(name, getattr(r, name), getattr(nn, name), (4, 6))
    yield Row("GELU, tanh", lambda: r.GELUTanh(), lambda: nn.GELU(approximate="tanh"), (4, 6))
    yield Row("Softmax", lambda: r.Softmax(), lambda: nn.Softmax(-1), (4, 6))
    yield Row("LogSoftmax", lambda: r.LogSoftmax(), lambda: nn.LogSoftmax(-1), (4, 6))
    yield Row("Flatten", lambda: r.Flatten(), lambda: nn.Flatten(), (4, 3, 2))
    yield Row("PixelShuffle", lambda: r.PixelShuffle(2), lambda: nn.PixelShuffle(2), (2, 12, 3, 2), image=True)
    yield Row("PixelUnshuffle", lambda: r.PixelUnshuffle(2), lambda: nn.PixelUnshuffle(2), (2, 3, 4, 6), image=True)
    yield Row("Upsample", lambda: r.Upsample(scale_factor=[2.0, 2.0]), lambda: nn.Upsample(scale_factor=2), (2, 3, 4, 5), image=True)
    yield Row("Upsample, bilinear", lambda: r.Upsample(size=[7, 9], mode="linear"),
              lambda: nn.Upsample(size=(7, 9), mode="bilinear"), (2, 3, 4, 5), image=True)
    yield Row("MultiheadAttention", lambda: r.MultiheadAttention(16, 4), lambda: nn.MultiheadAttention(16, 4, batch_first=True),
              (2, 5, 16), (2, 7, 16), (2, 7, 16))
    for norm_first in (False, True):
        word = ", norm first" if norm_first else ""
        yield Row("TransformerEncoderLayer" + word, lambda f=norm_first: r.TransformerEncoderLayer(**t, norm_first=f),
                  lambda f=norm_first: nn.TransformerEncoderLayer(**t, norm_first=f, batch_first=True), (2, 5, 16))
        yield Row("TransformerDecoderLayer" + word, lambda f=norm_first: r.TransformerDecoderLayer(**t, norm_first=f),
                  lambda f=norm_first: nn.TransformerDecoderLayer(**t, norm_first=f, batch_first=True), (2, 5, 16), (2, 7, 16))
    yield Row("TransformerEncoder", lambda: r.TransformerEncoder(**t, num_layers=2), lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**t, batch_first=True), 2), (2, 5, 16))
    yield Row("TransformerDecoder", lambda: r.TransformerDecoder(**t, num_layers=2), lambda: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(**t, batch_first=True), 2), (2, 5, 16), (2, 7, 16))
    yield Row("Transformer", lambda: r.Transformer(**t, num_encoder_layers=1, num_decoder_layers=2), lambda: nn.Transformer(
        **t, num_encoder_layers=1, num_decoder_layers=2, batch_first=True), (2, 5, 16), (2, 7, 16), more={"causal": False})  # ours is causal unless told


def last(a):
    return np.ascontiguousarray(a.transpose(0, *range(2, a.ndim), 1))


def first(result):
    """The result, of modules that return states beside it, too."""
    return result[0] if isinstance(result, tuple) else result


def weights(shape):
    return np.linspace(-0.9, 1.1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def check(row):
    """Returns '' if the row holds, else why not."""
    torch.manual_seed(3)
    theirs, ours = row.theirs().train(row.train), row.ours()
    ours.train(row.train)
    with torch.no_grad():  # norms begin with ones and zeros, which show little
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn_like(p))
    state = {k: v.detach().numpy().copy() for k, v in theirs.state_dict().items() if not k.endswith("num_batches_tracked")}
    if sorted(ours.state_dict()) != sorted(state):
        return f"the state has the names {sorted(ours.state_dict())}"
    ours.load_state_dict(state)
    generator = np.random.default_rng(5)
    given = [generator.integers(0, row.classes, s) if row.classes else generator.normal(size=s).astype(np.float32) for s in row.shapes]
    xs = [torch.from_numpy(g).requires_grad_(not row.classes) for g in given]
    ys = [rw.tensor(last(g) if row.image else g) for g in given]
    for y in ys:
        y.requires_grad = not row.classes
    a, b = first(theirs(*xs)), first(ours(*ys, **row.more))
    w = weights(a.shape)
    (a * torch.from_numpy(w)).sum().backward()


    def channels(v):  # of images, and of the kernels of convolutions in memory
        return last(v) if row.image and v.ndim > 2 else v
    rw.sum(b * rw.tensor(channels(w))).backward()
    pairs = [("the result", channels(a.detach().numpy()), b)]
    if not row.classes:
        pairs += [(f"the gradient of input {i}", channels(x.grad.numpy()), y.grad) for i, (x, y) in enumerate(zip(xs, ys))]
    named = dict(ours.named_parameters())
    pairs += [(f"the gradient of {k}", channels(p.grad.numpy()), named[k].grad) for k, p in theirs.named_parameters()]
    pairs += [(f"the state {k}", v.numpy(), dict(ours.state_dict())[k]) for k, v in theirs.named_buffers() if "running" in k]
    for what, wanted, got in pairs:
        got = got.numpy()
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=row.tolerance, atol=row.tolerance):
            return f"{what} differs"
    return ""


def main():
    warnings.simplefilter("ignore")
    options = options_of(__doc__)
    found = {}
    for row in rows():
        if fnmatch.fnmatch(row.name, options.only):
            try:
                found[row.name] = check(row)
            except Exception as error:  # the table shows it
                found[row.name] = reason(error)
            if found[row.name]:
                print(row.name, "|", found[row.name])
    held = sum(not why for why in found.values())
    print(f"{held} of {len(found)} modules hold")
    if options.write:
        with open(options.write, "w") as file:
            file.write(f"# Modules beside torch.nn, from Python\n\n{held} of {len(found)} rows hold: names of the state, results, gradients "
                       f"(PyTorch {torch.__version__}, Rewind {rw.__version__}). Made by `python3 python/judges/modules.py --write`.\n\n"
                       "| module | holds |\n|---|---|\n")
            file.writelines(f"| {name} | {why.replace('|', '/') or 'yes'} |\n" for name, why in found.items())
    return 0 if options.only != "*" or held >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
