#!/usr/bin/env python3
"""Writes lora.inc: what PEFT's adapters compute, and their gradients, in f64.

Needs PyTorch and peft. Weights and inputs come from hashed.py.
Usage: make_lora_goldens.py > lora.inc"""

import peft
import torch
from torch import nn
from torch.nn import functional as F

from hashed import hashed

FORMS = [("LoRA", {}), ("rsLoRA", dict(use_rslora=True)), ("DoRA", dict(use_dora=True)),
         ("DoRA of rsLoRA", dict(use_dora=True, use_rslora=True))]


class TwoLayers(nn.Module):
    """That of tests/nn/lora_fixture.h."""

    def __init__(self):
        super().__init__()
        self.block = nn.ModuleDict(dict(first_proj=nn.Linear(6, 4), second_proj=nn.Linear(4, 6, bias=False)))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(F.silu(self.block["second_proj"](F.silu(self.block["first_proj"](x)))))


def filled(name, tensor):
    values = 0.25 * torch.from_numpy(hashed(name, tuple(tensor.shape))).double()
    return values + 1 if name.endswith("magnitude_vector") else values


def row(name, tensor):
    values = ", ".join(f"{v:.12g}" for v in tensor.flatten().tolist())
    return f'      {{"{name}", {tensor.numel()}, {tensor.norm().item():.12g}, {{{values}}}}},'


def main():
    print("// Made by make_lora_goldens.py; do not edit. Rows: name, elements, norm, elements, in f64.")
    print("const std::vector<LoraGolden> lora_goldens = {")
    for form, options in FORMS:
        chain = TwoLayers().double()
        for name, parameter in chain.named_parameters():
            parameter.data = filled(name, parameter)
        model = peft.get_peft_model(chain, peft.LoraConfig(
            r=2, lora_alpha=3, target_modules=["first_proj", "second_proj"], **options)).double()
        trained = {}
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            name = name.removeprefix("base_model.model.").replace(".default", "")
            name = name.replace("magnitude_vector.weight", "magnitude_vector")
            parameter.data = filled(name, parameter)
            trained[name] = parameter
        x = torch.from_numpy(hashed("x", (5, 6))).double()
        y = model(x)
        (y + y * y).sum().backward()
        print(f'    {{"{form}", {{.rank = 2, .alpha = 3, .rank_stabilized = {str("use_rslora" in options).lower()}, '
              f'.dora = {str("use_dora" in options).lower()}}},\n     {{')
        print(row("y", y.detach()))
        for name, parameter in trained.items():
            print(row(name, parameter.grad))
        print("     }},")
    print("};")


if __name__ == "__main__":
    main()
