#!/usr/bin/env python3
"""Writes optimizers.inc: parameters after 20 steps of torch.optim (made with PyTorch 2.14, f64; Muon's iteration
in f64 too, instead of its bf16). The gradients are some_values() of tests/fixtures/optim_fixture.h.
Usage: make_optimizer_goldens.py > optimizers.inc"""

import torch

torch.Tensor.bfloat16 = torch.Tensor.clone  # of Muon's iteration


def some_values(n, seed):
    return torch.tensor([((i * 37 + seed * 53) % 101) / 50 - 1 for i in range(n)], dtype=torch.float64)


def train(make, shapes=((3, 5), (7,))):
    """Returns the values after 20 steps. Parameter k begins at seed k; its gradient in step t has the seed 7 k + t + 1."""
    parameters = [torch.nn.Parameter(some_values(torch.Size(s).numel(), k).reshape(s)) for k, s in enumerate(shapes)]
    optimizer = make(parameters)
    for t in range(20):
        for k, p in enumerate(parameters):
            p.grad = some_values(p.numel(), 7 * k + t + 1).reshape(p.shape)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in parameters])


O = torch.optim
CASES = {
    "rmsprop": lambda p: O.RMSprop(p),
    "rmsprop_decay": lambda p: O.RMSprop(p, lr=0.02, alpha=0.9, weight_decay=0.1),
    "rmsprop_momentum": lambda p: O.RMSprop(p, momentum=0.9),
    "rmsprop_centered": lambda p: O.RMSprop(p, centered=True, eps=1e-3),
    "rmsprop_all": lambda p: O.RMSprop(p, alpha=0.95, momentum=0.8, centered=True, weight_decay=0.05, eps=1e-3),
    "adagrad": lambda p: O.Adagrad(p),
    "adagrad_all": lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5),
    "amsgrad": lambda p: O.Adam(p, lr=0.01, betas=(0.9, 0.5), weight_decay=0.1, amsgrad=True),
    "amsgrad_decoupled": lambda p: O.AdamW(p, lr=0.01, betas=(0.9, 0.5), weight_decay=0.1, amsgrad=True),
    "adafactor": lambda p: O.Adafactor(p, eps=(torch.finfo(torch.float32).eps, 1e-3)),
    "adafactor_all": lambda p: O.Adafactor(p, lr=0.3, beta2_decay=-0.6, eps=(1e-4, 1e-2), d=1.05, weight_decay=0.1),
    "adafactor_batches": lambda p: O.Adafactor(p, lr=0.1, eps=(torch.finfo(torch.float32).eps, 1e-3)),
}
SHAPES = {"adafactor_batches": ((2, 3, 4, 5), (2, 1), (1, 9))}
MUON = {
    "muon": dict(),
    "muon_plain": dict(lr=0.02, momentum=0.9, nesterov=False, weight_decay=0.2, ns_steps=3),
    "muon_match": dict(lr=0.02, adjust_lr_fn="match_rms_adamw"),
}


def main():
    print("// Made by make_optimizer_goldens.py; do not edit.\n// clang-format off")
    found = {name: train(make, SHAPES.get(name, ((3, 5), (7,)))) for name, make in CASES.items()}
    found |= {name: train(lambda p, o=o: O.Muon(p, **o), ((3, 5), (9, 4))) for name, o in MUON.items()}
    for name, values in found.items():
        print(f"const std::vector<double> {name} = {{{', '.join(f'{v:.9g}' for v in values.tolist())}}};")


main()
