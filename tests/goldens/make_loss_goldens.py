#!/usr/bin/env python3
"""Writes losses.inc: losses and gradients by the first input of torch.nn.functional (made with PyTorch 2.14, f64).
Inputs are values() below. Usage: make_loss_goldens.py > losses.inc"""

import torch
import torch.nn.functional as F


def values(n, seed, low=-2.0, high=2.0):
    return torch.tensor([low + (high - low) * ((i * 37 + seed * 53) % 101) / 101 for i in range(n)], dtype=torch.float64)


N, C = 4, 5
x = values(N * C, 1, -3, 3).reshape(N, C)
y = values(N * C, 2, -3, 3).reshape(N, C)
z = values(N * C, 3, -3, 3).reshape(N, C)
px = values(N * C, 4, 0.05, 0.95).reshape(N, C)
pt = values(N * C, 5, 0.0, 1.0).reshape(N, C)
sign = torch.tensor([1.0, -1, 1, -1], dtype=torch.float64)
index = torch.tensor([3, 0, 2, 4])
ignoring = torch.tensor([3, 2, 0, 2])
weight = values(C, 6, 0.5, 2.0)
table, bias = values(7 * C, 9).reshape(7, C), values(7, 10)
soft = pt / pt.sum(1, keepdim=True)


def focal(a, alpha, gamma):
    p = torch.sigmoid(a)
    q = p * pt + (1 - p) * (1 - pt)
    loss = F.binary_cross_entropy_with_logits(a, pt, reduction="none") * (1 - q) ** gamma
    return loss * (alpha * pt + (1 - alpha) * (1 - pt)) if alpha >= 0 else loss


speech = values(7 * 3 * 5, 7, -3, 3).reshape(7, 3, 5)  # frames, samples, classes
said = torch.tensor([[1, 1, 2], [4, 2, 0], [3, 0, 0]])


def ctc(a, frames, labels, blank=0, **options):
    return F.ctc_loss(a.log_softmax(2), said, torch.tensor(frames), torch.tensor(labels), blank=blank, **options)


places = values(2 * 4 * 3 * 5, 8, -3, 3).reshape(2, 4, 3, 5)  # samples, frames, labels + 1, classes


def rnnt(a, frames, labels, blank=0):
    """Returns the losses of a transducer, by the recursion of Graves 2012."""
    losses = []
    for n in range(2):
        p = a[n].log_softmax(2)
        alpha = {}
        for t in range(frames[n]):
            for u in range(labels[n] + 1):
                ways = [alpha[t - 1, u] + p[t - 1, u, blank]] if t > 0 else []
                ways += [alpha[t, u - 1] + p[t, u - 1, said[n, u - 1]]] if u > 0 else []
                alpha[t, u] = torch.logsumexp(torch.stack(ways), 0) if ways else torch.zeros(()).double()
        end = frames[n] - 1, labels[n]
        losses.append(-alpha[end] - p[end][blank])
    return torch.stack(losses)


CASES = {
    "mse": (x, lambda a: F.mse_loss(a, y, reduction="none")),
    "l1": (x, lambda a: F.l1_loss(a, y)),
    "smooth_l1": (x, lambda a: F.smooth_l1_loss(a, y, beta=0.7)),
    "huber": (x, lambda a: F.huber_loss(a, y, delta=0.7, reduction="sum")),
    "bce": (px, lambda a: F.binary_cross_entropy(a, pt, weight=weight)),
    "bce_logits": (x, lambda a: F.binary_cross_entropy_with_logits(a, pt, weight=weight, pos_weight=weight)),
    "bce_extreme": (x * 100, lambda a: F.binary_cross_entropy_with_logits(a, pt)),
    "kl": (x, lambda a: F.kl_div(a, pt, reduction="batchmean")),
    "kl_log": (x, lambda a: F.kl_div(a, y, log_target=True)),
    "focal": (x, lambda a: focal(a, 0.25, 2).mean()),
    "focal_plain": (x, lambda a: focal(a, -1, 1.5).mean()),
    "ranking": (x[:, 0], lambda a: F.margin_ranking_loss(a, y[:, 0], sign, margin=0.5)),
    "cosine": (x, lambda a: F.cosine_embedding_loss(a, y, sign, margin=-0.6)),
    "triplet": (x, lambda a: F.triplet_margin_loss(a, y, z, margin=3)),
    "triplet_swap": (x, lambda a: F.triplet_margin_loss(a, y, z, margin=3, p=3, swap=True)),
    "multi_margin": (x, lambda a: F.multi_margin_loss(a, index, p=1, margin=0.8)),
    "multi_margin_weight": (x, lambda a: F.multi_margin_loss(a, index, p=2, weight=weight)),
    "nll": (x, lambda a: F.nll_loss(a, ignoring, ignore_index=2)),
    "nll_weight": (x, lambda a: F.nll_loss(a, ignoring, weight=weight, ignore_index=2)),
    "ce": (x, lambda a: F.cross_entropy(a, index)),
    "ce_ignoring": (x, lambda a: F.cross_entropy(a, ignoring, ignore_index=2)),
    "ce_ignoring_sum": (x, lambda a: F.cross_entropy(a, ignoring, ignore_index=2, reduction="sum")),
    "ce_label_smoothing": (x, lambda a: F.cross_entropy(a, index, label_smoothing=0.2)),
    "ce_label_smoothing_ignoring": (x, lambda a: F.cross_entropy(a, ignoring, ignore_index=2, label_smoothing=0.2)),
    "ce_label_smoothing_none": (x, lambda a: F.cross_entropy(a, ignoring, ignore_index=2, label_smoothing=0.2,
                                                             reduction="none")),
    "ce_tied": (x, lambda a: F.cross_entropy(F.linear(a, table, bias), ignoring, ignore_index=2, label_smoothing=0.1)),
    "ce_weight": (x, lambda a: F.cross_entropy(a, ignoring, weight=weight, ignore_index=2)),
    "ce_smooth": (x, lambda a: F.cross_entropy(a, ignoring, weight=weight, ignore_index=2, label_smoothing=0.2)),
    "ce_soft": (x, lambda a: F.cross_entropy(a, soft)),
    "ce_soft_all": (x, lambda a: F.cross_entropy(a, soft, weight=weight, label_smoothing=0.2)),
    "ctc": (speech, lambda a: ctc(a, [7, 5, 6], [3, 2, 1])),
    "ctc_sum": (speech, lambda a: ctc(a, [4, 2, 7], [3, 2, 0], reduction="sum")),
    "ctc_none": (speech, lambda a: ctc(a, [7, 7, 1], [2, 1, 1], reduction="none")),
    "ctc_blank": (speech, lambda a: ctc(a, [7, 6, 4], [3, 3, 0], blank=3)),
    "ctc_impossible": (speech, lambda a: ctc(a, [3, 1, 5], [3, 2, 1], zero_infinity=True)),
    "rnnt": (places, lambda a: rnnt(a, [4, 3], [2, 1])),
    "rnnt_mean": (places, lambda a: rnnt(a, [1, 4], [0, 2], blank=3).mean()),
    "ce_soft_none": (x, lambda a: F.cross_entropy(a, soft, weight=weight, reduction="none")),
}


def main():
    print("// Made by make_loss_goldens.py; do not edit.\n// clang-format off")
    for name, (a, loss) in CASES.items():
        a = a.clone().requires_grad_()
        out = loss(a)
        out.sum().backward()
        for kind, v in (("loss", out), ("grad", a.grad)):
            text = ", ".join(f"{e:.9g}" for e in v.detach().flatten().tolist())
            print(f"const std::vector<double> {name}_{kind} = {{{text}}};")


main()
