#!/usr/bin/env python3
"""Writes gradients.inc: losses that depend on gradients, and their gradients (made with PyTorch 2.15, f64). Inputs are
values() below, in Rewind's layouts. Usage: make_gradient_goldens.py > gradients.inc"""

import torch
import torch.nn.functional as F


def values(shape, seed, scale=1.0):
    """Returns floats, which f32 holds, as a leaf."""
    n = torch.Size(shape).numel()
    floats = torch.tensor([scale * (((i * 37 + seed * 53) % 101) / 50 - 1) for i in range(n)], dtype=torch.float32)
    return floats.double().reshape(shape).requires_grad_()


def derivative(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def physics():
    """u'' + sin(u) = x on 7 points, with a network of two hidden layers (Raissi et al. 2019)."""
    w = [values((6, 1), 1), values((6,), 2), values((5, 6), 3), values((5,), 4), values((1, 5), 5), values((1,), 6)]
    x = values((7, 1), 7)
    h = torch.tanh(F.linear(x, w[0], w[1]))
    u = F.linear(F.gelu(F.linear(h, w[2], w[3])), w[4], w[5])
    ux = derivative(u, x)
    uxx = derivative(ux, x)
    loss = ((uxx + torch.sin(u) - x) ** 2).mean() + ux.square().mean()
    return loss, w


def penalty():
    """The gradient penalty of a critic of images (Gulrajani et al. 2017)."""
    w = [values((4, 3, 3, 2), 1), values((4,), 2), values((4,), 3), values((4,), 4), values((3, 2, 2, 4), 5),
         values((1, 12), 6), values((1,), 7)]
    real, fake, share = values((3, 5, 5, 2), 8), values((3, 5, 5, 2), 9), values((3, 1, 1, 1), 10, 0.5) + 0.5
    x = (share * real + (1 - share) * fake).detach().requires_grad_()

    def conv(t, weight, bias=None, **options):
        y = F.conv2d(t.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias, **options)
        return y.permute(0, 2, 3, 1)

    h = conv(x, w[0], w[1], padding=1)
    h = F.group_norm(h.permute(0, 3, 1, 2), 2, w[2], w[3]).permute(0, 2, 3, 1)
    h = conv(F.leaky_relu(h, 0.2), w[4], stride=3)
    score = F.linear(F.softplus(h).reshape(3, 12), w[5], w[6])
    slope = derivative(score, x).reshape(3, -1).norm(dim=1)
    loss = score.mean() + 10 * ((slope - 1) ** 2).mean()
    return loss, w


def learning():
    """Two steps of gradient descent on one task, judged by another batch (Finn et al. 2017)."""
    w = [values((6, 2), 1), values((6,), 2), values((3, 6), 3), values((3,), 4)]
    batches = [(values((5, 2), 5), torch.tensor([0, 2, 1, 1, 0])), (values((4, 2), 6), torch.tensor([2, 0, 1, 2]))]

    def loss_of(weights, batch):
        h = F.layer_norm(torch.tanh(F.linear(batch[0], weights[0], weights[1])), (6,))
        return F.cross_entropy(F.linear(h, weights[2], weights[3]), batch[1])

    fast = w
    for _ in range(2):
        steps = torch.autograd.grad(loss_of(fast, batches[0]), fast, create_graph=True)
        fast = [p - 0.5 * g for p, g in zip(fast, steps)]
    return loss_of(fast, batches[1]), w


print("// Made by make_gradient_goldens.py; do not edit.\n// clang-format off")
for make in (physics, penalty, learning):
    loss, w = make()
    flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, w)])
    for name, of in (("loss", loss.reshape(1)), ("grad", flat)):
        print(f"const std::vector<double> {make.__name__}_{name} = {{{', '.join(f'{v:.9g}' for v in of.tolist())}}};")
